//! The 49 torture messages of RFC 4475, made from its descriptions, each with the answer it deserves. They name
//! neither the stack nor its tests: the program itself is sent them, too.
//!
//! A response or ACK that deserves no answer is `-`. `ring` is an INVITE that reaches the user.

/// A message of our own that has what the RFC describes under `name`.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) bytes: Vec<u8>,
    pub(crate) answer: &'static str,
}

fn case(name: &'static str, answer: &'static str, text: &str) -> Case {
    Case {
        name,
        bytes: text.replace('\n', "\r\n").into_bytes(),
        answer,
    }
}

/// A request that is in order but for what `change` replaces.
pub(crate) fn plain(method: &str) -> String {
    format!(
        "{method} sip:+15550100@192.0.2.2 SIP/2.0\nTo: <sip:+15550100@carrier.example>\n\
         From: <sip:+15550123@carrier.example>;tag=far\nVia: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bKt\n\
         Call-ID: torture\nCSeq: 8 {method}\nMax-Forwards: 70\n\
         Contact: <sip:+15550123@192.0.2.1>\nContent-Length: 0\n\n"
    )
}

pub(crate) fn with(method: &str, from: &str, to: &str) -> String {
    let text = plain(method);
    let changed = text.replacen(from, to, 1);
    assert_ne!(text, changed, "{from}");
    changed
}

const SDP: &str =
    "v=0\no=- 1 1 IN IP4 192.0.2.1\ns=-\nc=IN IP4 192.0.2.1\nt=0 0\nm=audio 4000 RTP/AVP 0\n";

/// An INVITE with a body of that type.
pub(crate) fn offering(kind: &str, extra: &str) -> String {
    let length = SDP.replace('\n', "\r\n").len();
    with(
        "INVITE",
        "Content-Length: 0\n\n",
        &format!("{extra}Content-Type: {kind}\nContent-Length: {length}\n\n{SDP}"),
    )
}

/// 3.1.1: well formed.
fn valid() -> Vec<Case> {
    let long = |length: usize| "x".repeat(length);
    let mut binary = case(
        "mpart01",
        "405/MESSAGE",
        &with(
            "MESSAGE",
            "Content-Length: 0\n\n",
            "MIME-Version: 1.0\nContent-Type: multipart/mixed;boundary=7a9cbec02ceef655\n\
             Content-Length: 63\n\n--7a9cbec02ceef655\nContent-Type: application/octet-stream\n\n",
        ),
    );
    binary
        .bytes
        .extend([0, 0xff, 0x30, 0x82, 0x0d, 0x0a, 0x80, 0xfe]);
    let length = binary.bytes.len()
        - binary
            .bytes
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
            .unwrap()
        - 4;
    let text = String::from_utf8_lossy(&binary.bytes).into_owned();
    assert!(text.contains("Content-Length: 63"));
    let at = binary
        .bytes
        .windows(2)
        .position(|two| two == b"63")
        .unwrap();
    binary
        .bytes
        .splice(at..at + 2, length.to_string().into_bytes());
    vec![
        case(
            "wsinv",
            "ring",
            "INVITE sip:+15550100@192.0.2.2;unknownparam SIP/2.0\nTO :\n \
             sip:+15550100@carrier.example \nfrom   : \"A \\\\\\\"\"       <sip:a@carrier.example>\n  \
             ;\n  tag = 98asjd8\nMaX-fOrWaRdS: 0068\nCall-ID: wsinv.ndaksdj@192.0.2.1\nContent-Length   : 0\n\
             cseq: 0009\n  INVITE\nVia  : SIP  /   2.0\n /UDP\n    192.0.2.1;branch=390skdjuw\ns :\n\
             NewFangledHeader:   newfangled value\n continued newfangled value\n\
             UnknownHeaderWithUnusualValue: ;;,,;;,;\nRoute:\n <sip:services.example.com;lr;unknownwith=value;unknown-no-value>\n\
             v:  SIP  / 2.0  / TCP     spindle.example.com   ;\n  branch  =   z9hG4bK9ikj8  ,\n SIP  /    2.0   / \
             UDP  192.168.255.111   ; branch=\n z9hG4bK30239\nm:\"Quoted string \\\"\\\"\" <sip:a@192.0.2.1> ; \
             newparam =\n      newvalue ;\n  secondparam ; q = 0.33\n\n",
        ),
        case(
            "intmeth",
            "501/!interesting-Method0123456789_*+`.%indeed'~",
            "!interesting-Method0123456789_*+`.%indeed'~ sip:1_unusual.URI~(to-be!sure)&isn't+it$/crazy?,/;;*:\
             &it+has=1,weird!*pas$wo~d_too.(doesn't-it)@192.0.2.2 SIP/2.0\nVia: SIP/2.0/UDP \
             192.0.2.1;branch=z9hG4bK-.!%66*_+`'~\nTo: \"BEL:\\\u{7} NUL:\\\u{0} DEL:\\\u{7f}\" \
             <sip:1_unusual.URI~(to-be!sure)&isn't+it$/crazy?,/;;*@192.0.2.2>\nFrom: token1~` token2'+_ token3*%!.- \
             <sip:mundane@carrier.example>;fromParam''~+*_!.-%=\"необычный\";tag=_token~1'+`*%!-.\n\
             Call-ID: intmeth.word%ZK-!.*_+'@word`~)(><:\\/\"][?}{\nCSeq: 139122385 \
             !interesting-Method0123456789_*+`.%indeed'~\nMax-Forwards: 255\nextensionHeader-!.%*+_`'~:大停電\n\
             Content-Length: 0\n\n",
        ),
        case(
            "esc01",
            "ring",
            &with(
                "INVITE",
                "sip:+15550100@192.0.2.2",
                "sip:sips%3Auser%40example.com@192.0.2.2",
            ),
        ),
        case(
            "escnull",
            "405/REGISTER",
            &with(
                "REGISTER",
                "<sip:+15550123@192.0.2.1>",
                "<sip:%00@192.0.2.1>, <sip:%00%00@192.0.2.1>",
            ),
        ),
        case(
            "esc02",
            "501/RE%47IST%45R",
            &with("RE%47IST%45R", "To: <", "To: \"%Z%45\" <"),
        ),
        case(
            "lwsdisp",
            "200/OPTIONS",
            &with("OPTIONS", "From: <", "From: caller<"),
        ),
        case(
            "longreq",
            "ring",
            &with(
                "INVITE",
                "Call-ID: torture",
                &format!(
                    "{}Call-ID: {}\nUnknownLongHeader-{}: {}",
                    "Via: SIP/2.0/TCP sip33.example.com;received=192.0.2.8\n".repeat(33),
                    long(900),
                    long(300),
                    long(700)
                ),
            ),
        ),
        case(
            "dblreq",
            "405/REGISTER",
            &format!("{}{}", plain("REGISTER"), plain("INVITE")),
        ),
        case(
            "semiuri",
            "200/OPTIONS",
            &with(
                "OPTIONS",
                "sip:+15550100@192.0.2.2",
                "sip:user;par=u%40example.net@192.0.2.2",
            ),
        ),
        case(
            "transports",
            "200/OPTIONS",
            &with(
                "OPTIONS",
                "Call-ID",
                "Via: SIP/2.0/SCTP t1.example;branch=z9hG4bKa\nVia: SIP/2.0/TLS t2.example;branch=z9hG4bKb\n\
                 Via: SIP/2.0/UNKNOWN t3.example;branch=z9hG4bKc\nVia: SIP/2.0/TCP t4.example;branch=z9hG4bKd\nCall-ID",
            ),
        ),
        binary,
        case(
            "unreason",
            "-",
            &response("200 = 2**3 * 5**2 но сто девяносто девять - простое"),
        ),
        case("noreason", "-", &response("100 ")),
    ]
}

/// A response to nothing that was asked.
fn response(status: &str) -> String {
    let text = plain("INVITE");
    let (_, rest) = text.split_once('\n').unwrap();
    format!("SIP/2.0 {status}\n{rest}")
}

/// 3.1.2: not well formed.
fn invalid() -> Vec<Case> {
    vec![
        case(
            "badinv01",
            "400/INVITE",
            &with(
                "INVITE",
                "<sip:+15550123@192.0.2.1>",
                "\"A\" <sip:+15550123@192.0.2.1>;;,;,,",
            )
            .replace("branch=z9hG4bKt", "branch=z9hG4bKt;;,;,,"),
        ),
        case(
            "clerr",
            "400/INVITE",
            &offering("application/sdp", "").replace("Content-Length: ", "Content-Length: 9"),
        ),
        case(
            "ncl",
            "400/INVITE",
            &with("INVITE", "Content-Length: 0", "Content-Length: -999"),
        ),
        case(
            "scalar02",
            "400/REGISTER",
            &with("REGISTER", "CSeq: 8", "CSeq: 36893488147419103232").replace(
                "Max-Forwards: 70",
                "Max-Forwards: 300\nExpires: 1000000000000000000000000000000",
            ),
        ),
        case(
            "scalarlg",
            "-",
            &response("503 Service Unavailable")
                .replace("CSeq: 8", "CSeq: 9292394834772304023312")
                .replace(
                    "Max-Forwards: 70",
                    "Retry-After: 949302838503028349304023988",
                ),
        ),
        case(
            "quotbal",
            "400/INVITE",
            &with("INVITE", "To: <", "To: \"Mr. J. User <"),
        ),
        case(
            "ltgtruri",
            "400/INVITE",
            &with(
                "INVITE",
                "sip:+15550100@192.0.2.2 ",
                "<sip:+15550100@192.0.2.2> ",
            ),
        ),
        case(
            "lwsruri",
            "400/INVITE",
            &with(
                "INVITE",
                "sip:+15550100@192.0.2.2 ",
                "sip:+15550100@192.0.2.2; lr ",
            ),
        ),
        case(
            "lwsstart",
            "400/INVITE",
            &with(
                "INVITE",
                "INVITE sip:+15550100@192.0.2.2 ",
                "INVITE  sip:+15550100@192.0.2.2  ",
            ),
        ),
        case(
            "trws",
            "400/OPTIONS",
            &with("OPTIONS", "SIP/2.0\n", "SIP/2.0  \n"),
        ),
        case(
            "escruri",
            "400/INVITE",
            &with(
                "INVITE",
                "sip:+15550100@192.0.2.2 ",
                "sip:+15550100@192.0.2.2?Route=%3Csip:192.0.2.9%3E ",
            ),
        ),
        // A Date that nobody needs is not read, which the RFC allows.
        case(
            "baddate",
            "ring",
            &with(
                "INVITE",
                "Call-ID",
                "Date: Fri, 01 Jan 2010 16:00:00 EST\nCall-ID",
            ),
        ),
        case(
            "regbadct",
            "400/REGISTER",
            &with(
                "REGISTER",
                "<sip:+15550123@192.0.2.1>",
                "sip:user@192.0.2.1?Route=%3Csip:192.0.2.9%3E",
            ),
        ),
        case(
            "badaspec",
            "400/OPTIONS",
            &with(
                "OPTIONS",
                "To: <sip:+15550100@carrier.example>",
                "To: \"A, B\" < sip:b@carrier.example >",
            ),
        ),
        // Who can tell where the name ends may read it all the same.
        case(
            "baddn",
            "200/OPTIONS",
            &with("OPTIONS", "From: <", "From: Bell, Alexander <"),
        ),
        case(
            "badvers",
            "505/OPTIONS",
            &with("OPTIONS", "SIP/2.0\n", "SIP/7.0\n").replace("Via: SIP/2.0/", "Via: SIP/7.0/"),
        ),
        case(
            "mismatch01",
            "400/INVITE",
            &with("OPTIONS", "CSeq: 8 OPTIONS", "CSeq: 8 INVITE"),
        ),
        case(
            "mismatch02",
            "400/INVITE",
            &with("NEWMETHOD", "CSeq: 8 NEWMETHOD", "CSeq: 8 INVITE"),
        ),
        case(
            "bigcode",
            "-",
            &response("4294967301 better not break the receiver"),
        ),
    ]
}

/// 3.2 to 3.4: transactions, applications, RFC 2543.
fn semantic() -> Vec<Case> {
    vec![
        case(
            "badbranch",
            "400/OPTIONS",
            &with("OPTIONS", "branch=z9hG4bKt", "branch=z9hG4bK"),
        ),
        case(
            "insuf",
            "400/INVITE",
            "INVITE sip:+15550100@192.0.2.2 SIP/2.0\nCSeq: 193942 INVITE\n\
             Via: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bKkdj.insuf\nContent-Length: 0\n\n",
        ),
        case(
            "unkscm",
            "416/OPTIONS",
            &with(
                "OPTIONS",
                "sip:+15550100@192.0.2.2 ",
                "nobodyKnowsThisScheme:totallyopaquecontent ",
            ),
        ),
        case(
            "novelsc",
            "416/OPTIONS",
            &with(
                "OPTIONS",
                "sip:+15550100@192.0.2.2 ",
                "soap.beep://192.0.2.103:3002 ",
            ),
        ),
        // A registrar would say 400; a user agent that registers nobody says 405 before it looks at To.
        case(
            "unksm2",
            "405/REGISTER",
            &with(
                "REGISTER",
                "To: <sip:+15550100@carrier.example>",
                "To: isbn:2983792873",
            )
            .replace("<sip:+15550123@192.0.2.1>", "<name:John_Smith>"),
        ),
        case(
            "bext01",
            "420/OPTIONS",
            &with(
                "OPTIONS",
                "Call-ID",
                "Require: nothingSupportsThis, nothingSupportsThisEither\nProxy-Require: noProxiesSupportThis\nCall-ID",
            ),
        ),
        case(
            "invut",
            "415/INVITE",
            &offering("application/unknownformat", ""),
        ),
        case(
            "regaut01",
            "405/REGISTER",
            &with(
                "REGISTER",
                "Call-ID",
                "Authorization: NoOneKnowsThisScheme opaque-data=here\nCall-ID",
            ),
        ),
        case(
            "multi01",
            "400/INVITE",
            &with(
                "INVITE",
                "Max-Forwards: 70",
                "CSeq: 59 INVITE\nCall-ID: another\nTo: <sip:b@carrier.example>\nMax-Forwards: 5\nMax-Forwards: 70",
            ),
        ),
        case(
            "mcl01",
            "400/OPTIONS",
            &with(
                "OPTIONS",
                "Content-Length: 0",
                "Content-Length: 13\nContent-Length: 5\n\nThere's no way to know how many octets",
            ),
        ),
        case(
            "bcast",
            "-",
            &response("200 OK").replace("SIP/2.0/UDP 192.0.2.1;", "SIP/2.0/UDP 255.255.255.255;"),
        ),
        // Only a proxy may refuse for want of hops: we are the last.
        case(
            "zeromf",
            "200/OPTIONS",
            &with("OPTIONS", "Max-Forwards: 70", "Max-Forwards: 0"),
        ),
        case(
            "cparam01",
            "405/REGISTER",
            &with(
                "REGISTER",
                "<sip:+15550123@192.0.2.1>",
                "sip:+19725552222@192.0.2.1;unknownparam",
            ),
        ),
        case(
            "cparam02",
            "405/REGISTER",
            &with(
                "REGISTER",
                "<sip:+15550123@192.0.2.1>",
                "<sip:+19725552222@192.0.2.1;unknownparam>",
            ),
        ),
        case(
            "regescrt",
            "405/REGISTER",
            &with(
                "REGISTER",
                "<sip:+15550123@192.0.2.1>",
                "<sip:user@192.0.2.1?Route=%3Csip:192.0.2.9%3E>",
            ),
        ),
        case(
            "sdp01",
            "406/INVITE",
            &offering("application/sdp", "Accept: text/nobodyKnowsThis\n"),
        ),
        case(
            "inv2543",
            "ring",
            &offering("application/sdp", "")
                .replace(";branch=z9hG4bKt", "")
                .replace("Max-Forwards: 70\n", "")
                .replace(
                    "From: <sip:+15550123@carrier.example>;tag=far",
                    "From: sip:+15550123@carrier.example",
                ),
        ),
    ]
}

pub(crate) fn cases() -> Vec<Case> {
    [valid(), invalid(), semantic()]
        .into_iter()
        .flatten()
        .collect()
}
