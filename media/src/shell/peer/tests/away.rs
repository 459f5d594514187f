//! Callers without a network for a while. The time of our side is stepped; the client's stands, as if it slept.

use super::alone::Alone;
use super::*;

const STEP: Duration = Duration::from_millis(100);

/// Our side's time goes on for so long, and nothing comes or arrives.
fn cut(alone: &mut Alone, client: &Client, lasts: Duration) {
    let until = alone.now() + lasts;
    while alone.now() < until {
        alone.ahead += STEP;
        alone.turn();
        arrived(client);
    }
}

/// What is at the client's socket, which nobody reads any more.
fn arrived(client: &Client) -> Vec<Vec<u8>> {
    let mut buffer = [0; 2048];
    client.socket.set_nonblocking(true).unwrap();
    let datagrams = std::iter::from_fn(|| {
        client
            .socket
            .recv(&mut buffer)
            .ok()
            .map(|n| buffer[..n].to_vec())
    })
    .collect();
    client.socket.set_nonblocking(false).unwrap();
    datagrams
}

fn restarts(alone: &mut Alone, client: &mut Client) -> String {
    client.core.restart_ice();
    let offer = client.offer();
    alone.answer(offer, false)
}

#[test]
fn events_of_an_outage_come_within_four_seconds_of_the_way_back() {
    for sent_after_ms in [0, 500, 1000, 1900, 2500, 4000, 6000, 20_000] {
        let mut alone = Alone::new();
        let mut client = alone.client();
        let sent_after = Duration::from_millis(sent_after_ms);
        cut(&mut alone, &client, sent_after);
        alone.tell(1);
        cut(&mut alone, &client, Duration::from_secs(28) - sent_after);
        assert_eq!(alone.state, PeerState::Disconnected);

        let answer = restarts(&mut alone, &mut client);
        client.accept(&answer);
        // Counted in steps: what a busy machine takes for them is no one's delay.
        let back = alone.ahead;
        while client.messages.len() < 2 {
            alone.ahead += STEP;
            client.run_for(Duration::from_millis(1), |_| false);
            alone.turn();
            let late = alone.ahead - back;
            assert!(
                late < Duration::from_millis(4_500),
                "sent {sent_after_ms} ms after the cut: {late:?}"
            );
        }
        println!(
            "sent {sent_after_ms} ms after the cut: {:?}",
            alone.ahead - back
        );
        assert_eq!(alone.state, PeerState::Connected);
    }
}

#[test]
fn who_is_back_is_called_though_nothing_of_theirs_has_come() {
    let mut alone = Alone::new();
    let mut client = alone.client();
    cut(&mut alone, &client, Duration::from_secs(20));
    assert_eq!(alone.state, PeerState::Disconnected);
    restarts(&mut alone, &mut client);
    let mut checks = 0;
    for _ in 0..20 {
        alone.ahead += STEP;
        alone.turn();
        checks += arrived(&client)
            .iter()
            .filter(|bytes| stun::is_stun(bytes))
            .count();
    }
    assert!(checks > 0);
}
