# shellcheck shell=bash
# Sourced by the scripts beside it: goes to the root of the repository and sees to what a build
# needs. As root on a Debian-like system missing packages are installed; otherwise they are named.

cd "$(dirname "${BASH_SOURCE[0]}")/.."

# help_if_asked ARGUMENT...: prints the comment at the top of the script and ends, on -h or --help.
help_if_asked() {
    case "${1-}" in
    -h | --help)
        sed -n '2,/^[^#]/{s/^# \{0,1\}//p;}' "scripts/${0##*/}"
        exit 0
        ;;
    esac
}

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() {
    say "$*"
    exit 1
}

# Rust's version as rust-toolchain.toml has it.
rust_version() { sed -n 's/^channel *= *"\(.*\)"/\1/p' rust-toolchain.toml; }

# Where cargo puts what it builds: CARGO_TARGET_DIR and cargo's configuration are respected.
target_dir() {
    cargo metadata --format-version 1 --no-deps --offline |
        sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p'
}

# Packages whose files or programs are missing, for building and whatever commands are named.
missing_packages() {
    if ! printf '#include <stdlib.h>\n#include <linux/types.h>\n' | cc -E -x c - >/dev/null 2>&1; then
        echo gcc libc6-dev
    fi
    # A dependency's build script calls it.
    command -v git >/dev/null || echo git
    # cargo checks the certificates of the servers it downloads from.
    [ -n "${SSL_CERT_FILE:-}" ] || [ -e /etc/ssl/certs/ca-certificates.crt ] || echo ca-certificates
    local program
    for program in "$@"; do
        command -v "$program" >/dev/null || echo "$program"
    done
}

# Installs packages, or says how to.
install_packages() {
    if ! command -v apt-get >/dev/null; then
        die "missing: $* (names of Debian's packages); install them and start again"
    fi
    if [ "$(id -u)" != 0 ]; then
        die "missing: $*; install them and start again: sudo apt-get install -y --no-install-recommends $*"
    fi
    say "installing $*"
    local log
    log=$(mktemp)
    if ! {
        apt-get update &&
            DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"
    } >"$log" 2>&1; then
        cat "$log" >&2
        rm -f "$log"
        die "apt-get install -y --no-install-recommends $* failed; its output is above"
    fi
    rm -f "$log"
}

# Makes `cargo` the version that is needed, with the components named.
need_rust() {
    local version rust_install
    version=$(rust_version)
    rust_install="install rustup as https://rustup.rs says, or a rustup package, then: rustup toolchain install $version --profile minimal --component clippy,rustfmt"
    PATH="$PATH:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin"
    if ! command -v cargo >/dev/null; then
        # Older releases of Debian have no rustup, and a Rust that is too old.
        if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null && have_package rustup; then
            install_packages rustup
        else
            die "missing: Rust $version; $rust_install"
        fi
    fi
    # rustup would fetch the toolchain at the first use of cargo, or refuse to, without a word here.
    if command -v rustup >/dev/null && [ -z "${RUSTUP_TOOLCHAIN:-}" ] &&
        [[ $(rustup toolchain list) != *"$version"* ]]; then
        say "installing Rust $version"
        rustup toolchain install "$version" --profile minimal --component clippy,rustfmt >&2 ||
            die "Rust $version could not be installed; $rust_install"
    fi
    local found
    found=$(cargo --version) || die "cargo does not run; $rust_install"
    found=${found#cargo }
    found=${found%% *}
    if [ "$(printf '%s\n' "$version" "${found%%-*}" | sort -V | head -n 1)" != "$version" ]; then
        die "Rust $version is needed, cargo is $found; $rust_install"
    fi
    local component
    for component in "$@"; do
        cargo "$component" --version >/dev/null 2>&1 && continue
        local name=$component
        [ "$component" = fmt ] && name=rustfmt
        command -v rustup >/dev/null || die "missing: cargo $component; $rust_install"
        say "installing $name"
        rustup component add "$name" >&2 || die "$name could not be installed; $rust_install"
    done
}

# Whether the distribution has a package, once its lists are up to date.
have_package() {
    apt-get update >/dev/null 2>&1 || true
    apt-cache show "$1" >/dev/null 2>&1
}

# Everything a build needs, and the commands named.
need_build_tools() {
    local missing
    missing=$(missing_packages "$@")
    # shellcheck disable=SC2086 # one word per package
    [ -z "$missing" ] || install_packages $missing
}
