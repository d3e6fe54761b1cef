#!/bin/sh
# The tests of the web UI run in Chromium. On a fresh machine of root's, such as one that runs CI,
# it is installed here; otherwise the tests say how.
set -u
for name in chromium chromium-browser google-chrome; do
  if command -v "$name" >/dev/null 2>&1; then exit 0; fi
done
if [ -n "${WARREN_CHROMIUM:-}" ]; then exit 0; fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
  echo "installing Chromium for the tests of the web UI (a minute) ..."
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq >/dev/null 2>&1
  if apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null 2>&1; then exit 0; fi
  echo "apt-get could not install Chromium" >&2
fi
exit 0
