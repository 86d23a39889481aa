# `just` lists these; CONTRIBUTING.md explains them

default:
    @just --list

# everything that must hold before a change lands
ci:
    .ci/run

# the tests of all crates, or of what is named: `just test --test cache`
test *words:
    cargo test --locked {{ words }}

# format, clippy and the documentation, without warnings
check:
    cargo fmt --all --check
    cargo clippy --locked --workspace --exclude autotune-lowered-proto --all-targets -- -D warnings
    RUSTDOCFLAGS='-D warnings' cargo doc --locked --no-deps

# writes the transcripts of commands and docs/cli.md again; read the diff
goldens filter='':
    SNAPSHOTS=overwrite cargo test --locked --test cli -- transcripts::{{ filter }}

# the first command of the README
first:
    examples/transformer/tune
