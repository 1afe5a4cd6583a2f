//! However answers overtake each other, the cache ends where the newest of them would have put it,
//! and never refuses what the store would have taken.

use proptest::{collection::vec, prelude::*};

use super::*;

fn standing(token: i64, seq: i64, version: i64) -> Standing {
    let mark = Mark { token, seq };
    Standing { mark, version: Version::from_stored(version), present: true, ..Standing::default() }
}

proptest! {
    #[test]
    fn the_order_of_news_does_not_matter(
        news in vec((1..6_i64, 0..3_i64, 1..9_i64), 1..10),
        shuffled in any::<prop::sample::Index>(),
    ) {
        let key = Key::new("k").unwrap();
        let (forward, backward) = (Marks::new(ByteSize::mib(1)), Marks::new(ByteSize::mib(1)));
        for (token, seq, version) in &news {
            forward.raise(&key, &standing(*token, *seq, *version), *token, *token);
        }
        let mut others = news.clone();
        others.reverse();
        let place = shuffled.index(others.len());
        others.rotate_left(place);
        for (token, seq, version) in &others {
            backward.raise(&key, &standing(*token, *seq, *version), *token, *token);
        }
        prop_assert_eq!(forward.known.get(&key), backward.known.get(&key));
        let highest = news.iter().map(|(token, ..)| *token).max().unwrap();
        for token in 1..8 {
            let token = Token::new(token).unwrap();
            let refused = forward.refuse(&Unit::single(Write::claim(key.clone(), token))).is_some();
            prop_assert_eq!(refused, token.get() < highest);
            prop_assert_eq!(forward.has_reached(&key, token), token.get() <= highest);
        }
    }
}
