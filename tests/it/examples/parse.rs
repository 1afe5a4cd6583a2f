//! Whether the command line takes what a document shows.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Words as a shell would split them. Operators are words of their own.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut word: Option<String> = None;
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                word.extend(characters.by_ref().take_while(|next| *next != character));
            }
            '\\' if characters.peek() == Some(&'\n') => {
                characters.next();
                words.extend(word.take());
            }
            '#' if word.is_none() => {
                words.push("\n".into());
                while characters.next_if(|next| *next != '\n').is_some() {}
            }
            '$' if characters.peek() == Some(&'(') => {
                characters.next();
                word = None;
                words.push("$(".into());
            }
            '|' | '&' | ';' | '<' | '>' | ')' | '\n' => {
                words.extend(word.take());
                words.push(character.into());
            }
            space if space.is_whitespace() => words.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    words
}

/// Every command of fencepost in it, also after `kubectl exec … --` and within `sh -c '…'`.
pub fn commands(text: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let all = words(text);
    let is_operator =
        |word: &String| matches!(word.as_str(), "|" | "&" | ";" | "<" | ">" | ")" | "$(" | "\n");
    for command in all.split(is_operator) {
        let begins = |(index, word): (usize, &String)| {
            let before = index.checked_sub(1).map(|before| command[before].as_str());
            let first = before.is_none_or(|before| {
                before == "--"
                    || before.contains('=')
                    || before.ends_with("* * *")
                    || before == "*"
                    || before == "@reboot"
            });
            first && (word == "fencepost" || word == "/fencepost")
        };
        if let Some(start) = command.iter().enumerate().find_map(|at| begins(at).then_some(at.0)) {
            let mut command = command[start..].to_vec();
            // `2>>` leaves its digit behind.
            if command.last().is_some_and(|last| last == "2") {
                command.pop();
            }
            found.push(command);
        }
        for script in command.iter().filter(|word| word.contains("fencepost ")) {
            found.extend(commands(script));
        }
    }
    found
}

/// An error if the command line does not take it. Under `fencepost run`, the token comes from the environment.
pub fn parse(command: &[String]) -> Result<(), String> {
    let Err(error) = fencepost::cli::command().try_get_matches_from(command) else { return Ok(()) };
    let lacks_token = || match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::Strings(missing)) => missing[..] == ["--token <TOKEN>"],
        _ => false,
    };
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Ok(()),
        ErrorKind::MissingRequiredArgument if lacks_token() => Ok(()),
        _ => Err(error.to_string()),
    }
}

/// The same for a command that is merely mentioned: it may lack what it needs, or have a placeholder such as `TOKEN`
/// there, but has nothing that is not known.
pub fn parse_mention(command: &[String]) -> Result<(), String> {
    let Err(error) = fencepost::cli::command().try_get_matches_from(command) else { return Ok(()) };
    let is_placeholder = || match error.get(ContextKind::InvalidValue) {
        Some(ContextValue::String(value)) => {
            !value.is_empty() && value.chars().all(|letter| letter.is_ascii_uppercase())
        }
        _ => false,
    };
    let lacks_value = || match error.get(ContextKind::InvalidValue) {
        Some(ContextValue::String(value)) => value.is_empty(),
        _ => false,
    };
    match error.kind() {
        ErrorKind::ValueValidation if is_placeholder() => Ok(()),
        ErrorKind::InvalidValue if lacks_value() => Ok(()),
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
        | ErrorKind::MissingRequiredArgument => Ok(()),
        _ => Err(error.to_string()),
    }
}

#[test]
fn commands_are_found_wherever_a_shell_would_run_them() {
    let found = |text: &str| -> Vec<String> {
        commands(text).into_iter().map(|command| command.join(" ")).collect()
    };
    assert_eq!(
        found("TOKEN=$(fencepost lock orders -o token) || exit"),
        ["fencepost lock orders -o token"]
    );
    assert_eq!(
        found("fencepost run --lock a -- sh -c 'fencepost put k v'   # allowed"),
        ["fencepost run --lock a -- sh -c fencepost put k v", "fencepost put k v"]
    );
    assert_eq!(found("kubectl exec x -c fencepost -- /fencepost locks"), ["/fencepost locks"]);
    assert_eq!(found("fencepost token a > b 2>> c"), ["fencepost token a"]);
    assert_eq!(found("fencepost serve --a \\\n  --b"), ["fencepost serve --a --b"]);
    for nonsense in ["--nonsense", "nonsense"] {
        let command =
            ["fencepost".to_owned(), "locks".to_owned(), "a".to_owned(), nonsense.to_owned()];
        assert!(parse(&command).is_err() && parse_mention(&command).is_err(), "{nonsense}");
    }
}
