#!/bin/sh
# Compiles a CPython for musl: python-musl.sh PLACE MACHINE BUILDER VERSION, in a directory with the sources of zlib,
# libffi, openssl and pythonVERSION, each in a directory below one of its name. BUILDER has a CPython of the same version,
# which runs the build's own programs. The compiler is that of CC, AR and RANLIB.
set -e
place=$1 machine=$2 builder=$3 version=$4
target=$machine-linux-musl
host="--prefix=$place --host=$target --build=$(uname -m)-linux-gnu"

make_install() {
    make -j "$(nproc)"
    make "$1"
}

(cd zlib/*/ && export "CHOST=$target" && ./configure --static "--prefix=$place" && make_install install)
(cd libffi/*/ && autoreconf --install && ./configure $host --disable-shared --with-pic --disable-docs && make_install install)
(cd openssl/*/ && perl Configure "linux-$machine" "--prefix=$place" no-shared no-tests --libdir=lib && make_install install_dev)
cd "python$version"/*/
# By the C library's headers it would recognise musl, but not by Zig's copy of them.
printf '#undef linux\nPLATFORM_TRIPLET=%s\n' "$target" > Misc/platform_triplet.c
export LD_LIBRARY_PATH="$builder" CPPFLAGS="-I$place/include" LDFLAGS="-L$place/lib" PKG_CONFIG_LIBDIR="$place/lib/pkgconfig"
# The last three: what it would find by running a program there.
./configure $host --disable-test-modules --without-ensurepip "--with-openssl=$place" \
    "--with-build-python=$builder/bin/python$version" \
    ac_cv_file__dev_ptmx=yes ac_cv_file__dev_ptc=no ac_cv_buggy_getaddrinfo=no
make_install install
