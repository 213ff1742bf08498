//! Bodies of the right shape, from any bytes: random ones hardly ever are JSON.

use arbitrary::{Result, Unstructured};

/// A body whose members, values and spellings follow the bytes of `choices`.
pub fn from_choices(choices: &[u8]) -> String {
    let mut writer = Writer { choices: Unstructured::new(choices), out: String::new() };
    // Where the choices end the first of each is taken, so there is always a document.
    let _ = writer.document();
    writer.out
}

struct Writer<'a> {
    choices: Unstructured<'a>,
    out: String,
}

impl Writer<'_> {
    fn document(&mut self) -> Result<()> {
        self.space()?;
        self.out.push('{');
        let mut is_first = true;
        while !self.choices.is_empty() && !self.choices.ratio(1, 12)? {
            if !std::mem::take(&mut is_first) {
                self.out.push(',');
            }
            self.member()?;
        }
        self.out.push('}');
        self.space()
    }

    fn member(&mut self) -> Result<()> {
        match self.choices.int_in_range(0..=5)? {
            0 => {
                self.key(&[
                    "model",
                    "rid",
                    "cache_salt",
                    "extra_key",
                    "lora_path",
                    "lora_id",
                    "query",
                ])?;
                self.mostly_string()
            }
            1 => {
                self.key(&["prompt", "text", "input", "system"])?;
                self.one_or_many(Self::mostly_string)
            }
            2 => {
                self.key(&["input_ids"])?;
                self.one_or_many(|writer| writer.one_or_many(Self::number))
            }
            3 | 4 => {
                self.key(&["messages", "input"])?;
                self.list(Self::message)
            }
            _ => {
                self.key(&["stream", "model", "messages", "text", "x"])?;
                self.value(0)
            }
        }
    }

    fn message(&mut self) -> Result<()> {
        self.out.push('{');
        self.key(&["role"])?;
        self.string(&["user", "assistant", "system", "tool"])?;
        self.out.push(',');
        self.key(&["content", "text"])?;
        self.one_or_many(Self::part)?;
        if self.choices.ratio(1, 3)? {
            self.out.push(',');
            self.key(&["reasoning_content", "content", "role"])?;
            self.mostly_string()?;
        }
        self.out.push('}');
        Ok(())
    }

    fn part(&mut self) -> Result<()> {
        if self.choices.ratio(1, 3)? {
            return self.mostly_string();
        }
        self.out.push('{');
        self.key(&["type"])?;
        self.string(&["text", "input_text", "output_text", "reasoning_text", "image_url"])?;
        self.out.push(',');
        self.key(&["text", "type"])?;
        self.mostly_string()?;
        self.out.push('}');
        Ok(())
    }

    fn one_or_many(&mut self, one: impl Fn(&mut Self) -> Result<()>) -> Result<()> {
        if self.choices.arbitrary()? { one(self) } else { self.list(one) }
    }

    fn list(&mut self, one: impl Fn(&mut Self) -> Result<()>) -> Result<()> {
        self.out.push('[');
        let length = self.choices.int_in_range(0..=3)?;
        for at in 0..length {
            if at > 0 {
                self.out.push(',');
            }
            self.space()?;
            one(self)?;
        }
        self.out.push(']');
        Ok(())
    }

    fn value(&mut self, depth: usize) -> Result<()> {
        match self.choices.int_in_range(0..=6)? {
            0 => self.word(&["true", "false", "null"]),
            1 => self.number(),
            2 | 3 => self.mostly_string(),
            4 if depth < 4 => self.list(|writer| writer.value(depth + 1)),
            5 if depth < 4 => {
                self.out.push('{');
                self.key(&["content", "text", "type", "role"])?;
                self.value(depth + 1)?;
                self.out.push('}');
                Ok(())
            }
            _ => self.word(&["[]", "{}", "nul", "NaN", "", "\"", "[1,]", "-"]),
        }
    }

    fn number(&mut self) -> Result<()> {
        if self.choices.ratio(1, 3)? {
            return self.word(&[
                "-0",
                "1.0",
                "1e2",
                "1E+400",
                "-1e999",
                "0e9",
                "2147483648",
                "-2147483648",
                "-2147483649",
                "4294967295",
                "4294967296",
                "9223372036854775808",
                "18446744073709551615",
                "18446744073709551616",
                "-9223372036854775809",
                "01",
                "1.",
                "123456789012345678901234567890",
                "0.1234567890123456789012345",
            ]);
        }
        let number: i32 = self.choices.arbitrary()?;
        self.out.push_str(&number.to_string());
        Ok(())
    }

    fn mostly_string(&mut self) -> Result<()> {
        if self.choices.ratio(1, 10)? {
            return self.word(&["null", "7", "true", "[]", "{}"]);
        }
        self.out.push('"');
        for _ in 0..self.choices.int_in_range(0..=4)? {
            let pieces = [
                "a",
                "word ",
                "é",
                "你",
                "😀",
                "\\n",
                "\\\"",
                "\\\\",
                "\\/",
                "\\u0041",
                "\\u00e9",
                "\\ud83d\\ude00",
                "\\ud83d",
                "\\ude00",
                "\\uD800\\u0041",
                "\\u0000",
                "\u{2028}",
                "\\x",
                "\n",
                "\\u12",
                "a rather long piece of text, so that words differ; ",
            ];
            self.word(&pieces)?;
        }
        self.out.push('"');
        Ok(())
    }

    /// A key and its colon, now and then with its first letter as an escape.
    fn key(&mut self, names: &[&str]) -> Result<()> {
        let name = *self.choices.choose(names)?;
        self.space()?;
        self.spelt(name)?;
        self.space()?;
        self.out.push(':');
        self.space()
    }

    fn string(&mut self, texts: &[&str]) -> Result<()> {
        let text = *self.choices.choose(texts)?;
        self.spelt(text)
    }

    fn spelt(&mut self, text: &str) -> Result<()> {
        let (first, rest) = text.split_at(1);
        if self.choices.ratio(1, 12)? {
            self.out.push_str(&format!("\"\\u{:04x}{rest}\"", first.as_bytes()[0]));
        } else {
            self.out.push_str(&format!("\"{text}\""));
        }
        Ok(())
    }

    fn word(&mut self, words: &[&str]) -> Result<()> {
        let word = self.choices.choose(words)?;
        self.out.push_str(word);
        Ok(())
    }

    fn space(&mut self) -> Result<()> {
        if self.choices.ratio(1, 10)? { self.word(&[" ", "\n", "\t\r ", "\u{a0}"]) } else { Ok(()) }
    }
}
