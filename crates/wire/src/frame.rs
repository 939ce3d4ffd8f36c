//! A frame: the length of what follows in four bytes, the highest first.

/// More than any runtime sends.
pub const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// A bundle of a node with a thousand pods has some megabytes.
pub const REPLY_BYTES_MAX: u32 = 256 << 20;

/// A frame that is not read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("longer than {most} bytes")]
pub struct FrameError {
    pub most: u32,
}

/// A body with its length before it, to be written in one piece.
pub fn frame(body: &[u8]) -> Result<Vec<u8>, FrameError> {
    let length = u32::try_from(body.len()).map_err(|_| FrameError { most: u32::MAX })?;
    let mut frame = Vec::with_capacity(4 + body.len());
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(body);
    Ok(frame)
}

/// How long the body is that follows these four bytes.
pub fn body_length(head: [u8; 4], most: u32) -> Result<usize, FrameError> {
    let length = u32::from_be_bytes(head);
    match usize::try_from(length) {
        Ok(bytes) if length <= most => Ok(bytes),
        _ => Err(FrameError { most }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_says_its_length() {
        let frame = frame(b"abc").unwrap();
        assert_eq!(frame, b"\0\0\0\x03abc");
        assert_eq!(body_length([0, 0, 0, 3], 3), Ok(3));
        assert_eq!(body_length([0, 0, 0, 3], 2).unwrap_err().to_string(), "longer than 2 bytes");
    }
}
