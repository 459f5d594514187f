//! Who we are to all callers over WebRTC: a certificate of our own making, and the source of randomness.

use std::fmt;
use std::sync::Arc;

use rtc::crypto::{RTCCryptoProvider, SignatureScheme};
use rtc::peer_connection::certificate::{CertificateParams, RTCCertificate};

use crate::peer::PeerError;

/// What all connections of the engine share: the certificate, and the source of randomness.
#[derive(Clone)]
pub(in super::super) struct Identity {
    pub(super) provider: Arc<dyn RTCCryptoProvider>,
    pub(super) certificate: RTCCertificate,
}

impl Identity {
    /// Draws a key.
    pub(in super::super) fn new() -> Result<Self, String> {
        let provider = rtc::crypto::default_provider().map_err(|error| error.to_string())?;
        let params = CertificateParams::new(vec!["sidetone".to_owned()])
            .map_err(|error| error.to_string())?;
        let certificate =
            RTCCertificate::generate(provider.crypto(), SignatureScheme::EcdsaP256Sha256, params)
                .map_err(|error| error.to_string())?;
        Ok(Self {
            provider,
            certificate,
        })
    }

    pub(super) fn random<const N: usize>(&self) -> Result<[u8; N], PeerError> {
        let mut bytes = [0; N];
        self.provider
            .random()
            .fill(&mut bytes)
            .map_err(|error| PeerError::Failed(error.to_string()))?;
        Ok(bytes)
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").finish_non_exhaustive()
    }
}
