#!/usr/bin/env bash
# Puts Consul 1.8.7 into DIR without installing it: Debian's package, from bullseye, the last suite that has one.
# Prints the path of the program. Needs apt-get and dpkg, and the key of Debian's archive.
set -euo pipefail
dir=$(realpath -m "$1"); bin=$dir/usr/bin/consul
if [ ! -x "$bin" ]; then
  mirror=$(apt-get indextargets --format '$(REPO_URI)' | grep -E '/debian/?$' | sort -u | head -n 1)
  mirror=${mirror:-http://deb.debian.org/debian}
  scratch=$(mktemp -d); trap 'rm -rf "$scratch"' EXIT
  mkdir -p "$scratch/lists/partial" "$scratch/cache/archives/partial" "$dir"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror bullseye main" >"$scratch/sources.list"
  apt=(-o "Dir::Etc::sourcelist=$scratch/sources.list" -o Dir::Etc::sourceparts=/dev/null
    -o "Dir::State::lists=$scratch/lists" -o "Dir::Cache=$scratch/cache" -o APT::Sandbox::User=root)
  (cd "$scratch" && apt-get "${apt[@]}" -qq update && apt-get "${apt[@]}" -qq download consul) >&2
  dpkg -x "$scratch"/consul_*.deb "$dir"
fi
echo "$bin"
