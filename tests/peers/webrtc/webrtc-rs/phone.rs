//! A browser's side of a call, played by webrtc-rs. Commands come as JSON lines, what happens is told as JSON lines, as
//! by `phone.py`; but Opus is encoded and decoded by whoever gives the commands. Everything stays on loopback.

use std::error::Error;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{interval, timeout};
use webrtc::api::APIBuilder;
use webrtc::api::interceptor_registry::register_default_interceptors;
use webrtc::api::media_engine::{MIME_TYPE_OPUS, MediaEngine};
use webrtc::api::setting_engine::SettingEngine;
use webrtc::data_channel::RTCDataChannel;
use webrtc::data_channel::data_channel_message::DataChannelMessage;
use webrtc::ice::mdns::MulticastDnsMode;
use webrtc::ice::network_type::NetworkType;
use webrtc::ice_transport::ice_server::RTCIceServer;
use webrtc::interceptor::registry::Registry;
use webrtc::media::Sample;
use webrtc::peer_connection::RTCPeerConnection;
use webrtc::peer_connection::configuration::RTCConfiguration;
use webrtc::peer_connection::peer_connection_state::RTCPeerConnectionState;
use webrtc::peer_connection::sdp::session_description::RTCSessionDescription;
use webrtc::rtp::packet::Packet;
use webrtc::rtp_transceiver::rtp_codec::RTCRtpCodecCapability;
use webrtc::track::track_local::TrackLocal;
use webrtc::track::track_local::track_local_static_sample::TrackLocalStaticSample;
use webrtc::track::track_remote::TrackRemote;

/// What a packet holds of the sound.
const PACKET: Duration = Duration::from_millis(20);

/// A packet of silence: one frame of CELT, fullband, mono (RFC 6716 section 3.1).
const SILENCE: &[u8] = &[0xf8, 0xff, 0xfe];

/// In silence nothing is sent: nothing for so long is told as a pause.
const PAUSE: Duration = Duration::from_millis(600);

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// The first command.
#[derive(Deserialize)]
struct New {
    #[serde(default)]
    ice_servers: Vec<IceServer>,
    /// `false`: the server will.
    offers: Option<bool>,
}

#[derive(Deserialize)]
struct IceServer {
    urls: Vec<String>,
    #[serde(default)]
    username: String,
    #[serde(default)]
    credential: String,
}

/// The others.
#[derive(Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
enum Command {
    Offer,
    /// The server's answer.
    Answer {
        sdp: String,
    },
    /// The server's offer, to be answered.
    Take {
        sdp: String,
    },
    /// Packets of Opus, to be sent in their turn.
    Speak {
        packets: Vec<Vec<u8>>,
    },
}

struct Phone {
    connection: RTCPeerConnection,
    mouth: UnboundedSender<Bytes>,
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let first = lines.next_line().await?.ok_or("no command came")?;
    let phone = Phone::new(serde_json::from_str(&first)?).await?;
    while let Some(line) = lines.next_line().await? {
        let command = serde_json::from_str(&line)?;
        // Whoever tests decides what it means.
        if let Err(error) = phone.obey(command).await {
            tell(&json!({"event": "error", "do": line, "why": error.to_string()}));
        }
    }
    phone.connection.close().await?;
    Ok(())
}

fn tell(event: &Value) {
    println!("{event}");
}

impl Phone {
    async fn new(new: New) -> Outcome<Self> {
        let mut media = MediaEngine::default();
        media.register_default_codecs()?;
        let registry = register_default_interceptors(Registry::new(), &mut media)?;
        let mut settings = SettingEngine::default();
        settings.set_include_loopback_candidate(true);
        settings.set_ip_filter(Box::new(|ip: IpAddr| ip.is_loopback()));
        settings.set_network_types(vec![NetworkType::Udp4]);
        settings.set_ice_multicast_dns_mode(MulticastDnsMode::Disabled);
        let api = APIBuilder::new()
            .with_media_engine(media)
            .with_interceptor_registry(registry)
            .with_setting_engine(settings)
            .build();
        let configuration = RTCConfiguration {
            ice_servers: new.ice_servers.into_iter().map(ice_server).collect(),
            ..Default::default()
        };
        let connection = api.new_peer_connection(configuration).await?;

        let connected = Arc::new(Notify::new());
        let changed = Arc::clone(&connected);
        connection.on_peer_connection_state_change(Box::new(
            move |state: RTCPeerConnectionState| {
                if state == RTCPeerConnectionState::Connected {
                    changed.notify_one();
                }
                tell(&json!({"event": "state", "state": state.to_string()}));
                Box::pin(async {})
            },
        ));
        connection.on_track(Box::new(|track: Arc<TrackRemote>, _, _| {
            tokio::spawn(listen(track));
            Box::pin(async {})
        }));

        let opus = RTCRtpCodecCapability {
            mime_type: MIME_TYPE_OPUS.to_owned(),
            ..Default::default()
        };
        let (id, stream) = ("microphone".to_owned(), "caller".to_owned());
        let track = Arc::new(TrackLocalStaticSample::new(opus, id, stream));
        let sender = connection
            .add_track(Arc::clone(&track) as Arc<dyn TrackLocal + Send + Sync>)
            .await?;
        // Reports are looked at as they are read.
        tokio::spawn(async move {
            let mut report = vec![0_u8; 1500];
            while sender.read(&mut report).await.is_ok() {}
        });
        let (mouth, words) = unbounded_channel();
        tokio::spawn(speak(track, words, connected));

        if new.offers == Some(false) {
            connection.on_data_channel(Box::new(|events: Arc<RTCDataChannel>| {
                hear_channel(&events);
                Box::pin(async {})
            }));
        } else {
            let events = connection.create_data_channel("events", None).await?;
            hear_channel(&events);
        }
        Ok(Self { connection, mouth })
    }

    async fn obey(&self, command: Command) -> Outcome<()> {
        match command {
            Command::Offer => {
                let offer = self.connection.create_offer(None).await?;
                self.describe(offer).await?;
            }
            Command::Answer { sdp } => {
                let answer = RTCSessionDescription::answer(sdp)?;
                self.connection.set_remote_description(answer).await?;
                tell(&json!({"event": "settled"}));
            }
            Command::Take { sdp } => {
                let offer = RTCSessionDescription::offer(sdp)?;
                self.connection.set_remote_description(offer).await?;
                let answer = self.connection.create_answer(None).await?;
                self.describe(answer).await?;
            }
            Command::Speak { packets } => {
                for packet in packets {
                    self.mouth.send(Bytes::from(packet))?;
                }
            }
        }
        Ok(())
    }

    /// Settles on a description of this side, and tells it with all candidates in it.
    async fn describe(&self, description: RTCSessionDescription) -> Outcome<()> {
        let mut gathered = self.connection.gathering_complete_promise().await;
        self.connection.set_local_description(description).await?;
        // Nothing is ever sent there: it is closed when all are found.
        let _ = gathered.recv().await;
        let described = self.connection.local_description().await;
        let RTCSessionDescription { sdp_type, sdp, .. } =
            described.ok_or("there is no description")?;
        tell(&json!({"event": "description", "type": sdp_type.to_string(), "sdp": sdp}));
        Ok(())
    }
}

fn ice_server(server: IceServer) -> RTCIceServer {
    let IceServer {
        urls,
        username,
        credential,
    } = server;
    RTCIceServer {
        urls,
        username,
        credential,
    }
}

fn hear_channel(channel: &RTCDataChannel) {
    channel.on_message(Box::new(|message: DataChannelMessage| {
        let text = String::from_utf8_lossy(&message.data);
        tell(&json!({"event": "message", "data": text}));
        Box::pin(async {})
    }));
}

/// Sends what there is to say, and silence; tells when all has been said.
async fn speak(
    track: Arc<TrackLocalStaticSample>,
    mut words: UnboundedReceiver<Bytes>,
    connected: Arc<Notify>,
) {
    connected.notified().await;
    let mut clock = interval(PACKET);
    let mut spoke = false;
    loop {
        clock.tick().await;
        let word = words.try_recv().ok();
        let speaks = word.is_some();
        if spoke && !speaks {
            tell(&json!({"event": "spoken"}));
        }
        spoke = speaks;
        let sample = Sample {
            data: word.unwrap_or(Bytes::from_static(SILENCE)),
            duration: PACKET,
            ..Default::default()
        };
        // The connection was closed.
        if track.write_sample(&sample).await.is_err() {
            return;
        }
    }
}

/// Tells of each packet that comes, and when none does.
async fn listen(track: Arc<TrackRemote>) {
    while let Some(packet) = next_packet(&track).await {
        tell(&json!({
            "event": "packet",
            "timestamp": packet.header.timestamp,
            "payload": packet.payload.to_vec(),
        }));
    }
}

/// `None`: there are no more.
async fn next_packet(track: &TrackRemote) -> Option<Packet> {
    // A read that is given up may lose a packet: it is gone on with.
    let reading = track.read_rtp();
    tokio::pin!(reading);
    let soon = timeout(PAUSE, reading.as_mut()).await;
    let read = match soon {
        Ok(read) => read,
        Err(_) => {
            tell(&json!({"event": "pause"}));
            reading.await
        }
    };
    read.ok().map(|(packet, _)| packet)
}
