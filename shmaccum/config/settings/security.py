"""Settings of TLS and SASL.

Secrets are of the type password. They are never shown, and are not part of the slab's name, which every user of the
host can read.
"""

from __future__ import annotations

from shmaccum.config.configdef import Config, Group, Importance, Scope, Setting
from shmaccum.config.validators import matching, one_of
from shmaccum.config.valuetypes import BOOLEAN, PASSWORD, PATH, STRING, optional, word


class SecuritySettings(Config, group=Group.SECURITY, scope=Scope.SLAB):
    """Kafka's settings of TLS and SASL (``SslConfigs``, ``SaslConfigs``), in PEM (KIP-651) or in Java's keystores."""

    __slots__ = ()

    sasl_jaas_config = Setting(
        optional(PASSWORD),
        None,
        importance=Importance.MEDIUM,
        doc="""The credentials in the form of Kafka's Java clients,
            `<login module> required username="..." password="...";`, with PlainLoginModule or ScramLoginModule, which
            accepts `tokenauth=true` for a delegation token. Of Krb5LoginModule, `useKeyTab`, `keyTab`, `principal`,
            `useTicketCache` and `serviceName` are supported; OAuthBearerLoginModule has no options here. Excludes the
            settings with the same meaning.""",
    )
    sasl_kerberos_keytab = Setting(
        PATH,
        "",
        importance=Importance.MEDIUM,
        doc="""The keytab with the keys of `sasl.kerberos.principal`, with which the sender gets its tickets. By default
            they come from the credential cache of the user. The name is librdkafka's; in Java it is `keyTab` in
            `sasl.jaas.config`. A relative path starts at the working directory of the process that creates the
            producer.""",
    )
    sasl_kerberos_principal = Setting(
        STRING,
        "",
        importance=Importance.MEDIUM,
        doc="""The sender's principal. Required by `sasl.kerberos.keytab`. Without a keytab it selects one of the
            credential caches of the user. The name is librdkafka's; in Java it is `principal` in
            `sasl.jaas.config`.""",
    )
    sasl_kerberos_service_name = Setting(
        STRING,
        "",
        importance=Importance.MEDIUM,
        doc="""The Kerberos principal that the brokers run as. Required by `sasl.mechanism` GSSAPI. The sender gets
            its own ticket with `sasl.kerberos.keytab`, or from the credential cache of the user.""",
    )
    sasl_mechanism = Setting(
        word(str.upper),
        "GSSAPI",
        one_of("GSSAPI", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"),
        importance=Importance.MEDIUM,
        doc="""How the sender authenticates, if `security.protocol` has SASL.""",
    )
    sasl_oauthbearer_token_provider = Setting(
        STRING,
        "",
        matching(r"([A-Za-z_]\w*(\.[A-Za-z_]\w*)*[.:][A-Za-z_]\w*)?", "empty, or the dotted name of a callable"),
        importance=Importance.MEDIUM,
        doc="""Dotted name of a callable that returns a token (text). The sender imports it and calls it without
            arguments for every connection, one call at a time, on a background thread. If the call takes longer than
            `socket.connection.setup.timeout.ms`, the login is tried again. Required by `sasl.mechanism`
            OAUTHBEARER.""",
    )
    sasl_password = Setting(
        optional(PASSWORD),
        None,
        importance=Importance.MEDIUM,
        doc="""The password of `sasl.username`. Required by `sasl.mechanism` PLAIN and SCRAM.""",
    )
    sasl_tokenauth = Setting(
        BOOLEAN,
        False,
        importance=Importance.MEDIUM,
        doc="""Whether `sasl.username` and `sasl.password` are the id and the HMAC of one of Kafka's delegation tokens
            (KIP-48), for `sasl.mechanism` SCRAM. In Java it is `tokenauth=true` in `sasl.jaas.config`.""",
    )
    sasl_username = Setting(
        STRING,
        "",
        importance=Importance.MEDIUM,
        doc="""The sender's user name at the brokers. Required by `sasl.mechanism` PLAIN and SCRAM.""",
    )
    security_protocol = Setting(
        word(str.upper),
        "PLAINTEXT",
        one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        importance=Importance.MEDIUM,
        doc="""Whether connections are encrypted (SSL) and whether the sender logs in (SASL).""",
    )
    ssl_key_password = Setting(
        optional(PASSWORD),
        None,
        importance=Importance.HIGH,
        doc="""The password of the private key in `ssl.keystore.location` or `ssl.keystore.key`, if the key is
            encrypted. In a Java keystore the default is the store's password.""",
    )
    ssl_keystore_certificate_chain = Setting(
        optional(PASSWORD),
        None,
        importance=Importance.HIGH,
        doc="""The sender's certificate and the certificates of its issuers, as text in PEM. Together with
            `ssl.keystore.key`, instead of `ssl.keystore.location`.""",
    )
    ssl_keystore_key = Setting(
        optional(PASSWORD),
        None,
        importance=Importance.HIGH,
        doc="""The private key of `ssl.keystore.certificate.chain`, as text in PEM.""",
    )
    ssl_keystore_location = Setting(
        PATH,
        "",
        importance=Importance.HIGH,
        doc="""PEM file or Java keystore (JKS, PKCS#12) with the sender's private key and certificates, for brokers that
            ask for one. PKCS#12 needs `pip install 'shmaccum[keystores]'`. A relative path starts at the working
            directory of the process that creates the producer.""",
    )
    ssl_keystore_password = Setting(
        optional(PASSWORD),
        None,
        importance=Importance.HIGH,
        doc="""The password of the Java keystore in `ssl.keystore.location`. A PEM file has none.""",
    )
    ssl_truststore_certificates = Setting(
        optional(PASSWORD),
        None,
        importance=Importance.HIGH,
        doc="""The certificate authorities that the brokers' certificates must be signed by, as text in PEM. Instead of
            `ssl.truststore.location`.""",
    )
    ssl_truststore_location = Setting(
        PATH,
        "",
        importance=Importance.HIGH,
        doc="""PEM file or Java keystore (JKS, PKCS#12) of the certificate authorities that the brokers' certificates
            must be signed by. Without it and `ssl.truststore.certificates`, the operating system's are used.""",
    )
    ssl_truststore_password = Setting(
        optional(PASSWORD),
        None,
        importance=Importance.HIGH,
        doc="""The password of the Java keystore in `ssl.truststore.location`. Without it, a JKS is read without an
            integrity check. A PEM file has none.""",
    )
    ssl_keystore_type = Setting(
        word(str.upper),
        "",
        one_of("PEM", "PKCS12", "JKS", ""),
        importance=Importance.MEDIUM,
        doc="""The format of `ssl.keystore.location`; by default the file's content decides. JKS and PKCS12 are
            interchangeable, as in Java.""",
    )
    ssl_truststore_type = Setting(
        word(str.upper),
        "",
        one_of("PEM", "PKCS12", "JKS", ""),
        importance=Importance.MEDIUM,
        doc="""The format of `ssl.truststore.location`; by default the file's content decides. JKS and PKCS12 are
            interchangeable, as in Java.""",
    )
    ssl_endpoint_identification_algorithm = Setting(
        word(str.lower),
        "https",
        one_of("https", ""),
        importance=Importance.LOW,
        doc="""Whether a broker's certificate must match the name that the sender connects to (https), or can be any
            trusted one (empty).""",
    )
