//! The program by way of which the tests start agents: a host's `main` begins like this one.

fn main() {
    portcullis_sandbox::child::run_if_child();
}
