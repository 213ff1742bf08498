# shellcheck shell=bash
# Sourced after lib.sh: where Prometheus comes from. No service is installed or started by it.

# Sets $prometheus and $promtool to programs that run, and $prometheus_flags to what the first needs:
# those of the PATH, else the distribution's package, unpacked below the target directory. That needs
# neither root nor a service.
# shellcheck disable=SC2034 # used by those who source this
need_prometheus() {
    local directory
    if prometheus=$(command -v prometheus) && promtool=$(command -v promtool); then
        prometheus_flags=()
        return
    fi
    directory=$(realpath -m "${CARGO_TARGET_DIR:-target}")/prometheus
    [ -x "$directory/usr/bin/prometheus" ] || unpack_prometheus "$directory"
    prometheus=$directory/usr/bin/prometheus
    promtool=$directory/usr/bin/promtool
    # The pages of Debian's build are files beside it.
    prometheus_flags=(--web.local-assets="$directory/usr/share/prometheus/web/")
}

# unpack_prometheus DIRECTORY: downloads the distribution's package and unpacks it there.
unpack_prometheus() {
    local partial=$1.partial log package pages
    command -v apt-get >/dev/null ||
        die "missing: prometheus and promtool; install it from https://prometheus.io/download or your distribution, so that they are in the PATH, and start again"
    say "unpacking the distribution's prometheus into $1"
    rm -rf "$partial"
    mkdir -p "$partial"
    log=$partial/log
    if [ "$(id -u)" = 0 ]; then apt-get update >>"$log" 2>&1 || true; fi
    if ! download_packages "$partial" prometheus >>"$log" 2>&1; then
        cat "$log" >&2
        die "prometheus could not be downloaded; the output of apt-get is above. Try 'sudo apt-get update' and start again, or put a prometheus into the PATH (https://prometheus.io/download)"
    fi
    # What its pages need in a browser. Without these it works all the same, but looks bare.
    pages=$(apt-cache depends prometheus | sed -n 's/^ *Depends: \(\(libjs\|fonts\)-.*\)/\1/p')
    # shellcheck disable=SC2086 # one word per package
    download_packages "$partial" $pages libjs-d3 >>"$log" 2>&1 ||
        say "what its pages need could not be downloaded: they will look bare"
    for package in "$partial"/*.deb; do dpkg -x "$package" "$partial" && rm "$package"; done
    rm -rf "$1"
    mv "$partial" "$1"
}

# download_packages DIRECTORY PACKAGE...: as root, apt would become a user who may not write there.
download_packages() { (cd "$1" && apt-get -o APT::Sandbox::User=root download "${@:2}"); }
