#!/bin/sh
# Runs a command in a root: enter.sh ROOT COMMAND .... With a file system and processes of its own, whatever the steps
# mount or start ends with them.
set -e
mount -t proc proc "$1/proc"
mount -t tmpfs tmpfs "$1/dev/shm"
root=$1; shift
exec chroot "$root" "$@"
