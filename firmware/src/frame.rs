//! Messages as bytes: a 4-byte little-endian length, then the message in postcard's encoding. Owns
//! the limits that hold against a hostile peer; knows no port.

use std::io::{self, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::message::{GuestMessage, HostMessage, TEXT_LIMIT};

/// Largest message in bytes. A command line with its environment is bounded by the kernel at 2 MiB
/// and is rarely a tenth of that.
pub const MAX_FRAME: usize = 4 * 1024 * 1024;
/// Largest message a guest may send, in bytes: two texts and some numbers.
const MAX_GUEST_FRAME: usize = 16 * 1024;

/// Why bytes are no message.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The length is beyond what this side accepts.
    #[error(
        "a frame of {length} bytes is beyond the limit of {limit}; the peer is broken or hostile, end the machine"
    )]
    TooLarge {
        /// Bytes announced.
        length: usize,
        /// Bytes accepted.
        limit: usize,
    },
    /// The bytes do not decode to a message, or go on behind it.
    #[error("a frame is no message of protocol version {version}; host and firmware do not match, build the firmware again", version = crate::PROTOCOL_VERSION)]
    Malformed,
    /// The port failed or ended within a frame.
    #[error("the control port failed: {0}; the other side is gone")]
    Port(#[from] io::Error),
}

/// A message that one side may send.
pub trait Message: Serialize + DeserializeOwned + sealed::Sealed {
    /// Largest frame of it that is accepted.
    #[doc(hidden)]
    const LIMIT: usize;

    /// Whether its texts keep within [`TEXT_LIMIT`].
    #[doc(hidden)]
    fn is_bounded(&self) -> bool {
        true
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::HostMessage {}
    impl Sealed for super::GuestMessage {}
}

impl Message for HostMessage {
    const LIMIT: usize = MAX_FRAME;
}

impl Message for GuestMessage {
    const LIMIT: usize = MAX_GUEST_FRAME;

    fn is_bounded(&self) -> bool {
        GuestMessage::is_bounded(self)
    }
}

/// One message as a frame. Refuses what the other side would refuse.
pub fn encode<M: Message>(message: &M) -> Result<Vec<u8>, FrameError> {
    let mut frame = postcard::to_extend(message, vec![0; 4]).map_err(|_| FrameError::Malformed)?;
    let length = frame.len() - 4;
    let header = header::<M>(length)?;
    bounded(message, length)?;
    frame[..4].copy_from_slice(&header);
    Ok(frame)
}

/// Writes one message to a blocking port and flushes.
pub fn write<M: Message>(port: &mut impl Write, message: &M) -> Result<(), FrameError> {
    port.write_all(&encode(message)?)?;
    port.flush()?;
    Ok(())
}

/// Reads one message from a blocking port; `None` when it ends between two.
pub fn read<M: Message>(port: &mut impl Read) -> Result<Option<M>, FrameError> {
    let mut decoder = Decoder::new();
    let mut byte = [0; 4];
    // The header alone to know a clean end, then what it announces and no more.
    while decoder.bytes.len() < 4 {
        let wanted = 4 - decoder.bytes.len();
        match port.read(&mut byte[..wanted]) {
            Ok(0) if decoder.bytes.is_empty() => return Ok(None),
            Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Ok(count) => decoder.push(&byte[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    let length = decoder.length::<M>()?.unwrap_or_default();
    let got = port.take(length as u64).read_to_end(&mut decoder.bytes)?;
    if got < length {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    decoder.next()
}

/// Cuts frames out of bytes as they come from a port that does not block. Never holds more than one
/// frame and what was pushed behind it; after an error the stream has no meaning any more.
#[derive(Debug, Default)]
pub struct Decoder {
    bytes: Vec<u8>,
}

impl Decoder {
    /// A decoder at the beginning of a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes bytes that arrived. Ask for messages until there is none before pushing more.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole message; `None` while it is not complete.
    #[allow(
        clippy::should_implement_trait,
        reason = "the type of message is chosen per call and errors end the stream"
    )]
    pub fn next<M: Message>(&mut self) -> Result<Option<M>, FrameError> {
        let Some(length) = self.length::<M>()? else {
            return Ok(None);
        };
        let Some(body) = self.bytes.get(4..4 + length) else {
            return Ok(None);
        };
        let (message, rest) =
            postcard::take_from_bytes::<M>(body).map_err(|_| FrameError::Malformed)?;
        if !rest.is_empty() {
            return Err(FrameError::Malformed);
        }
        bounded(&message, length)?;
        self.bytes.drain(..4 + length);
        Ok(Some(message))
    }

    /// What the header says, once it is there.
    fn length<M: Message>(&self) -> Result<Option<usize>, FrameError> {
        let Some(header) = self.bytes.first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*header) as usize;
        self::header::<M>(length).map(|_| Some(length))
    }
}

fn bounded<M: Message>(message: &M, length: usize) -> Result<(), FrameError> {
    if message.is_bounded() {
        Ok(())
    } else {
        Err(FrameError::TooLarge {
            length,
            limit: TEXT_LIMIT,
        })
    }
}

fn header<M: Message>(length: usize) -> Result<[u8; 4], FrameError> {
    let too_large = FrameError::TooLarge {
        length,
        limit: M::LIMIT,
    };
    match u32::try_from(length) {
        Ok(header) if length <= M::LIMIT => Ok(header.to_le_bytes()),
        _ => Err(too_large),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::message::{Command, Exit, Size};

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(any::<u8>(), 0..40)
    }

    fn host() -> impl Strategy<Value = HostMessage> {
        let size = (any::<u16>(), any::<u16>()).prop_map(|(rows, cols)| Size { rows, cols });
        let command = (
            prop::collection::vec(bytes(), 0..5),
            prop::collection::vec((bytes(), bytes()), 0..5),
            bytes(),
            any::<u32>(),
            any::<u32>(),
            size.clone(),
        )
            .prop_map(|(argv, env, cwd, uid, gid, size)| Command {
                argv,
                env,
                cwd,
                uid,
                gid,
                size,
            });
        prop_oneof![
            command.prop_map(HostMessage::Start),
            size.prop_map(HostMessage::Resize),
            any::<u8>().prop_map(HostMessage::Signal),
            Just(HostMessage::Shutdown),
        ]
    }

    fn guest() -> impl Strategy<Value = GuestMessage> {
        prop_oneof![
            any::<u32>().prop_map(|version| GuestMessage::Hello { version }),
            any::<u32>().prop_map(|pid| GuestMessage::Started { pid }),
            (bytes(), bytes()).prop_map(|(step, reason)| GuestMessage::Failed { step, reason }),
            any::<u8>().prop_map(|code| GuestMessage::Exited(Exit::Code(code))),
            any::<u8>().prop_map(|signal| GuestMessage::Exited(Exit::Signal(signal))),
            bytes().prop_map(GuestMessage::Log),
        ]
    }

    fn all<M: Message>(chunks: &[&[u8]]) -> Result<Vec<M>, FrameError> {
        let mut decoder = Decoder::new();
        let mut messages = Vec::new();
        for chunk in chunks {
            decoder.push(chunk);
            while let Some(message) = decoder.next()? {
                messages.push(message);
            }
        }
        Ok(messages)
    }

    proptest! {
        #[test]
        fn messages_arrive_whatever_the_portions(
            messages in prop::collection::vec(host(), 0..6),
            portion in 1usize..50,
        ) {
            let stream: Vec<u8> =
                messages.iter().flat_map(|message| encode(message).unwrap()).collect();
            let chunks: Vec<&[u8]> = stream.chunks(portion).collect();
            prop_assert_eq!(all::<HostMessage>(&chunks).unwrap(), messages.clone());
            let mut port = stream.as_slice();
            for message in messages {
                prop_assert_eq!(read::<HostMessage>(&mut port).unwrap(), Some(message));
            }
            prop_assert_eq!(read::<HostMessage>(&mut port).unwrap(), None);
        }

        #[test]
        fn what_the_guest_says_arrives(message in guest()) {
            let mut stream = Vec::new();
            write(&mut stream, &message).unwrap();
            prop_assert_eq!(all::<GuestMessage>(&[&stream]).unwrap(), vec![message]);
        }

        #[test]
        fn any_bytes_give_messages_or_an_error(
            mut stream in prop::collection::vec(any::<u8>(), 0..200),
            small in any::<bool>(),
        ) {
            // Most random lengths are too large: make some small enough to be decoded.
            if small && stream.len() > 4 {
                let length = (stream.len() - 4) as u32;
                stream[..4].copy_from_slice(&length.to_le_bytes());
            }
            let _ = all::<GuestMessage>(&[&stream]);
            let _ = all::<HostMessage>(&[&stream]);
            let _ = read::<GuestMessage>(&mut stream.as_slice());
        }

        #[test]
        fn a_torn_stream_ends_in_an_error(message in host(), cut in any::<prop::sample::Index>()) {
            let frame = encode(&message).unwrap();
            let cut = cut.index(frame.len());
            let got = read::<HostMessage>(&mut &frame[..cut]);
            if cut == 0 {
                prop_assert!(matches!(got, Ok(None)));
            } else {
                prop_assert!(matches!(got, Err(FrameError::Port(_))));
            }
        }
    }

    #[test]
    fn a_hostile_length_is_refused_at_once() {
        let frame = [
            (MAX_GUEST_FRAME as u32 + 1).to_le_bytes().as_slice(),
            &[0; 8],
        ]
        .concat();
        let error = all::<GuestMessage>(&[&frame]).unwrap_err();
        assert!(matches!(
            error,
            FrameError::TooLarge {
                length: 16_385,
                limit: 16_384
            }
        ));
        let frame = u32::MAX.to_le_bytes();
        assert!(matches!(
            read::<HostMessage>(&mut frame.as_slice()),
            Err(FrameError::TooLarge { .. })
        ));
        // A vector inside that claims more than there is.
        let inner = [&3u32.to_le_bytes()[..], &[4, 0xff, 0x7f]].concat();
        assert!(matches!(
            all::<GuestMessage>(&[&inner]),
            Err(FrameError::Malformed)
        ));
    }

    #[test]
    fn texts_and_trailing_bytes_are_bounded() {
        let long = GuestMessage::Log(vec![b'x'; TEXT_LIMIT + 1]);
        assert!(matches!(
            encode(&long),
            Err(FrameError::TooLarge {
                limit: TEXT_LIMIT,
                ..
            })
        ));
        let mut frame = encode(&GuestMessage::Log(vec![b'x'; TEXT_LIMIT])).unwrap();
        assert_eq!(all::<GuestMessage>(&[&frame]).unwrap().len(), 1);
        frame.push(0);
        let length = (frame.len() - 4) as u32;
        frame[..4].copy_from_slice(&length.to_le_bytes());
        assert!(matches!(
            all::<GuestMessage>(&[&frame]),
            Err(FrameError::Malformed)
        ));
    }
}
