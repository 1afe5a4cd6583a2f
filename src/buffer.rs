//! Memory for bodies. That of a large one goes back to the system as soon as the body is gone.
//!
//! The allocator keeps what is given back to it for a second, sorted by size, in case it is wanted again.
//! With bodies of a megabyte that soon is more than the bodies themselves. A mapping takes up as much as
//! has been written to it, and ends with its body.

use bytes::Bytes;
use memmap2::MmapMut;

/// From so many bytes on, a body has a mapping of its own.
const LARGE: usize = 64 << 10;

/// The least that is mapped for a body that does not say how long it will be.
const UNKNOWN_LENGTH: usize = 1 << 20;

/// A body that arrives in pieces.
pub struct Growing {
    memory: Memory,
    filled: usize,
    announced: Option<usize>,
}

enum Memory {
    Small(Vec<u8>),
    Large(MmapMut),
}

impl Growing {
    /// `announced`: how long it will be, if that is known. Nothing is taken up before it arrives.
    pub fn new(announced: Option<usize>) -> Self {
        Self { memory: Memory::Small(Vec::new()), filled: 0, announced }
    }

    pub fn push(&mut self, piece: &[u8]) {
        let filled = self.filled + piece.len();
        if filled < LARGE
            && let Memory::Small(bytes) = &mut self.memory
        {
            bytes.extend_from_slice(piece);
            self.filled = filled;
            return;
        }
        self.make_room(filled);
        match &mut self.memory {
            Memory::Large(map) => map[self.filled..filled].copy_from_slice(piece),
            Memory::Small(bytes) => bytes.extend_from_slice(piece),
        }
        self.filled = filled;
    }

    /// A mapping for so many bytes in all. Where there is none to be had, the allocator may have some left.
    fn make_room(&mut self, needed: usize) {
        if let Memory::Large(map) = &self.memory
            && needed <= map.len()
        {
            return;
        }
        let doubled = needed.max(2 * self.filled);
        let wanted = self.announced.unwrap_or(doubled.max(UNKNOWN_LENGTH)).max(needed);
        match MmapMut::map_anon(wanted) {
            Ok(mut map) => {
                map[..self.filled].copy_from_slice(self.as_slice());
                self.memory = Memory::Large(map);
            }
            Err(_) => self.memory = Memory::Small(self.as_slice().to_vec()),
        }
    }

    fn as_slice(&self) -> &[u8] {
        match &self.memory {
            Memory::Small(bytes) => bytes,
            Memory::Large(map) => &map[..self.filled],
        }
    }

    pub fn finish(self) -> Bytes {
        match self.memory {
            Memory::Small(mut bytes) => {
                bytes.shrink_to_fit();
                bytes.into()
            }
            Memory::Large(map) => Bytes::from_owner(Mapped { map, filled: self.filled }),
        }
    }
}

/// Bytes that stay when what they are a part of is gone.
pub fn copied(bytes: &[u8]) -> Bytes {
    let mut copy = Growing::new(Some(bytes.len()));
    copy.push(bytes);
    copy.finish()
}

/// What `write` makes of up to `most` bytes: it says how many.
pub fn written<E>(
    most: usize,
    write: impl FnOnce(&mut [u8]) -> Result<usize, E>,
) -> Result<Bytes, E> {
    if most >= LARGE
        && let Ok(mut map) = MmapMut::map_anon(most)
    {
        let filled = write(&mut map)?;
        return Ok(Bytes::from_owner(Mapped { map, filled }));
    }
    let mut bytes = vec![0; most];
    let filled = write(&mut bytes)?;
    bytes.truncate(filled);
    Ok(bytes.into())
}

struct Mapped {
    map: MmapMut,
    filled: usize,
}

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        &self.map[..self.filled]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(length: usize) -> Vec<u8> {
        (0..=u8::MAX).cycle().take(length).collect()
    }

    #[test]
    fn a_body_in_pieces_is_whole_however_long_it_is() {
        for length in [0, 1, LARGE - 1, LARGE, LARGE + 1, 3 * UNKNOWN_LENGTH + 5] {
            let body = pattern(length);
            for piece in [1 << 10, 16_000, LARGE, 5 << 20] {
                // A client may also announce too little or too much.
                for announced in [None, Some(length), Some(length / 2), Some(2 * length)] {
                    let mut growing = Growing::new(announced);
                    body.chunks(piece).for_each(|piece| growing.push(piece));
                    assert!(growing.finish() == body, "{length} in pieces of {piece}");
                }
            }
        }
    }

    #[test]
    fn a_copy_is_the_same() {
        for length in [0, 10, LARGE, UNKNOWN_LENGTH] {
            assert!(copied(&pattern(length)) == pattern(length));
            let half = written(length, |bytes| {
                bytes.copy_from_slice(&pattern(length));
                Ok::<_, ()>(length / 2)
            });
            assert!(half.unwrap() == pattern(length)[..length / 2]);
            assert_eq!(written(length, |_| Err(5)), Err(5));
        }
    }
}
