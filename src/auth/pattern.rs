//! Names with `*` in them, which stands for any text, none included. There is nothing else.

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub fn matches(&self, name: &str) -> bool {
        let mut parts = self.0.split('*');
        let first = parts.next().unwrap_or_default();
        let Some(rest) = name.strip_prefix(first) else { return false };
        let mut parts: Vec<&str> = parts.collect();
        let Some(last) = parts.pop() else { return rest.is_empty() };
        // The earliest place is the best for each: what is left for the others is the longest.
        let mut rest = rest;
        for part in parts {
            match rest.find(part) {
                Some(at) => rest = &rest[at + part.len()..],
                None => return false,
            }
        }
        rest.ends_with(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_any_text() {
        for (pattern, name) in [
            ("orders", "orders"),
            ("*", ""),
            ("*", "anybody"),
            ("spiffe://a.example/ns/shop/*", "spiffe://a.example/ns/shop/sa/orders"),
            ("system:serviceaccount:shop:*", "system:serviceaccount:shop:orders"),
            ("system:serviceaccount:*:orders", "system:serviceaccount:shop:orders"),
            ("*a*b*", "xaxbx"),
            ("a*a", "aa"),
            ("a**b", "ab"),
        ] {
            assert!(Pattern::new(pattern).matches(name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("orders", "orders2"),
            ("orders", "Orders"),
            ("orders", ""),
            ("", "orders"),
            ("a*a", "a"),
            ("orders*", "order"),
            ("*orders", "orders2"),
            ("spiffe://a.example/ns/shop/*", "spiffe://a.example/ns/shopping/sa/orders"),
            ("system:serviceaccount:shop:*", "system:serviceaccount:shop2:orders"),
            ("*a*b*", "xbxax"),
        ] {
            assert!(!Pattern::new(pattern).matches(name), "{pattern} {name}");
        }
    }
}
