#!/bin/sh
# Print the folder that holds iverilog and vvp, fetching Icarus first where it is missing: no wheel carries it.
# As root it comes from apt; without root the same package is unpacked under .venv with two wrappers.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
folder="$root/.venv/icarus"

if command -v iverilog >/dev/null 2>&1; then
    dirname "$(command -v iverilog)"
    exit 0
fi
if [ -x "$folder/bin/iverilog" ]; then
    echo "$folder/bin"
    exit 0
fi
if ! command -v apt-get >/dev/null 2>&1; then
    echo "Icarus Verilog 11 or newer is needed for the cocotb benches: install 'iverilog' with this system's package manager" >&2
    exit 1
fi
if [ "$(id -u)" = 0 ]; then
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq iverilog; } >&2
    dirname "$(command -v iverilog)"
    exit 0
fi
mkdir -p "$folder/lists/partial" "$folder/bin"
cd "$folder"
apt-get -qq -o Dir::State::lists="$folder/lists" -o Dir::Cache="$folder" -o Debug::NoLocking=1 update >&2
apt-get -qq -o Dir::State::lists="$folder/lists" -o Dir::Cache="$folder" download iverilog >&2
dpkg -x iverilog_*.deb "$folder"
library=$(dirname "$(find "$folder/usr/lib" -name ivlpp)")
printf '#!/bin/sh\nexec "%s/usr/bin/iverilog" -B "%s" "$@"\n' "$folder" "$library" >bin/iverilog
printf '#!/bin/sh\nexec "%s/usr/bin/vvp" -M "%s" "$@"\n' "$folder" "$library" >bin/vvp
chmod +x bin/iverilog bin/vvp
echo "$folder/bin"
