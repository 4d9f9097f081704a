#!/bin/bash
# Spark never speculates on the host of the first attempt, so each executor has an address of its own.
id=0 last=
for each in "$@"; do
    [ "$last" = --executor-id ] && id=$each
    last=$each
done
arguments=()
last=
for each in "$@"; do
    [ "$last" = --hostname ] && each=127.0.1.$((id % 250 + 1))
    arguments+=("$each")
    last=$each
done
exec {java} "${arguments[@]}"
