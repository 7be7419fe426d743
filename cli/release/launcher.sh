#!/bin/sh
# Starts parscale from an unpacked bundle: bin/parscale, bin/deno and app/ lie in one folder.
# Needs no network and no HOME, and writes only below a cache folder. Options set here win over the
# caller's environment, so that a deno of the user's own is neither used nor disturbed.
set -eu

# Deno reads .npmrc in HOME, and ends where that is a file; system users have /dev/null.
[ ! -e "${HOME:-/}" ] || [ -d "${HOME:-/}" ] || unset HOME

# The folder of the bundle, also when this file is called through links.
self=$0
case $self in */*) ;; *) self=$(command -v -- "$self") ;; esac
while [ -L "$self" ]; do
  link=$(readlink -- "$self")
  case $link in /*) self=$link ;; *) self=${self%/*}/$link ;; esac
done
root=$(cd -- "${self%/*}/.." && pwd -P)

# Deno keeps what it has translated. Who can write there decides what runs, so a folder that was
# not named for us must be our own, and one in a public place also closed to others and no link.
writable() { (umask 077 && mkdir -p -- "$1") 2>/dev/null && [ -d "$1" ] && [ -w "$1" ]; }
own() { writable "$1" && [ -O "$1" ]; }
closed() {
  { (umask 077 && mkdir -- "$1") 2>/dev/null || [ ! -L "$1" ]; } && own "$1" && chmod 700 -- "$1"
}
public=${TMPDIR:-/tmp}/parscale-$(id -u)
if [ -n "${PARSCALE_CACHE:-}" ] && writable "$PARSCALE_CACHE"; then cache=$PARSCALE_CACHE
elif [ -n "${XDG_CACHE_HOME:-}" ] && own "$XDG_CACHE_HOME/parscale"; then cache=$XDG_CACHE_HOME/parscale
elif [ -n "${HOME:-}" ] && own "$HOME/.cache/parscale"; then cache=$HOME/.cache/parscale
elif closed "$public"; then cache=$public
else cache= # nothing is kept then: every start translates anew, in memory
fi
if [ -n "$cache" ]; then export PARSCALE_CACHE="${PARSCALE_CACHE:-$cache}"; fi

export DENO_DIR="${cache:-/dev/null}/deno" DENO_NO_UPDATE_CHECK=1
exec "$root/bin/deno" run -A --quiet --no-prompt --no-remote --cached-only --no-check \
  --config "$root/app/deno.json" "$root/app/mod.ts" "$@"
