#!/usr/bin/env bash
# Run `make run`, starts and `make test` in minimal Debian roots, where only Python, git, make and
# curl are installed. It needs root and debootstrap; the roots are kept in build/bare.
#
#   tests/bare.sh [SUITE...]    the committed HEAD, in bookworm and trixie unless others are named
set -euo pipefail
cd "$(dirname "$0")/.."
TARGETS=${TARGETS:-run starts test}  # of make, except `starts`: pages; `run` is started, posted to and read
STARTS=${STARTS:-INSTALL.md BACKEND.md DATA.md OPERATOR.md}  # without Node.js and PostgreSQL
FOLDER=${FOLDER:-$PWD/build/bare}
INCLUDE=python3,python3-venv,git,make,curl,ca-certificates

# What pip needs to reach its index from here.
pass=(HOME=/root LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin "WORKERS=${WORKERS:-}")
while IFS= read -r each; do pass+=("$each"); done < <(env | grep -iE '^(PIP_|SSL_CERT_|[a-z]+_proxy=)')

inside() { # ROOT COMMAND: with /proc and /dev, and without what it leaves running
  unshare --mount --pid --fork --kill-child bash -ec '
    mount -t proc proc "$1/proc"; mount --rbind /dev "$1/dev"; exec chroot "$@"' - "$1" \
    /usr/bin/env -i "${pass[@]}" bash -ec "cd /src; $2"
}

TRY='
make run >/tmp/run.log 2>&1 &
trap "cat /tmp/run.log" EXIT
until grep -q " ready " /tmp/run.log; do kill -0 $!; sleep 1; done
.venv/bin/tidings post update bare x1
.venv/bin/tidings tail --from 0 --types bare --count 1 | tee /tmp/told
grep -q x1 /tmp/told'

(($#)) || set -- bookworm trixie
for suite in "$@"; do
  root=$FOLDER/$suite
  [[ -x $root/usr/bin/git ]] || debootstrap --variant=minbase --include=$INCLUDE "$suite" "$root"
  cp /etc/resolv.conf "$root/etc/"
  printf '127.0.0.1 localhost\n::1 localhost\n' >"$root/etc/hosts"  # as an installer does
  [[ ! -f /etc/pip.conf ]] || cp /etc/pip.conf "$root/etc/"
  cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"  # with the authorities of this machine
  rm -rf "$root/src" && git clone -q . "$root/src"
  for target in $TARGETS; do
    echo "== $suite: make $target"
    case $target in
      run) inside "$root" "$TRY" ;;
      starts) inside "$root" "make setup; .venv/bin/python -m tests.docs.test_quick_starts $STARTS" ;;
      *) inside "$root" "make $target" ;;
    esac
  done
done
