//! The process itself.

use kit::server::Setup;

#[tokio::test]
async fn as_many_files_may_be_open_as_the_system_allows() {
    let setup = Setup::default().scripted();
    let server = setup
        .through(&[
            "sh",
            "-c",
            "ulimit -Sn 300; ulimit -Hn 3000; exec \"$@\"",
            "sh",
        ])
        .start()
        .await;
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.pid())).unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .unwrap();
    let numbers: Vec<&str> = line
        .split_whitespace()
        .filter(|word| word.parse::<u64>().is_ok())
        .collect();
    assert_eq!(numbers, ["3000", "3000"], "{line}");
}
