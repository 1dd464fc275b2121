//! Documents, schemas and text drawn from a fuzzer's bytes.

/// Bytes that decide; when they run out every decision is the first choice.
pub(crate) struct Draw<'a>(std::slice::Iter<'a, u8>);

impl<'a> Draw<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes.iter())
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.0.next().copied().unwrap_or(0)
    }

    pub(crate) fn below(&mut self, count: usize) -> usize {
        usize::from(self.byte()) % count
    }

    pub(crate) fn pick<'b>(&mut self, choices: &[&'b str]) -> &'b str {
        choices[self.below(choices.len())]
    }

    /// A JSON text: nearly always well-formed, with the odd faults that strictness is about.
    pub(crate) fn document(&mut self) -> Vec<u8> {
        let mut out = String::new();
        if self.below(4) == 3 {
            self.value(&mut out, 0);
        } else {
            // Most scalars are soon tried out; what matters happens inside containers.
            let items = 1 + self.below(6);
            self.list(&mut out, ['[', ']'], items, |draw, out| draw.value(out, 1));
        }
        let mut bytes = out.into_bytes();
        if self.below(4) == 3 {
            // Break it a little.
            for _ in 0..=self.below(3) {
                let at = (self.below(256) * 256 + self.below(256)) % (bytes.len() + 1);
                match self.below(3) {
                    0 => bytes.insert(at, self.byte()),
                    1 if at < bytes.len() => {
                        bytes.remove(at);
                    }
                    _ if at < bytes.len() => bytes[at] = self.byte(),
                    _ => {}
                }
            }
        }
        bytes
    }

    fn space(&mut self, out: &mut String) {
        out.push_str(["", "", "", " ", "\n", "\t\r "][self.below(6)]);
    }

    pub(crate) fn value(&mut self, out: &mut String, depth: usize) {
        self.space(out);
        match self.below(if depth > 8 { 7 } else { 12 }) {
            0 => out.push_str("null"),
            1 => out.push_str("true"),
            2 => out.push_str("false"),
            3 | 4 => self.number(out),
            5 | 6 => self.string(out),
            7 | 8 => {
                let items = self.below(5);
                self.list(out, ['[', ']'], items, |draw, out| draw.value(out, depth + 1));
            }
            _ => {
                let members = self.below(5);
                self.list(out, ['{', '}'], members, |draw, out| {
                    draw.space(out);
                    let key = [
                        "\"a\"",
                        "\"b\"",
                        "\"\\u0061\"",
                        "\"é\"",
                        "\"\"",
                        "\"\u{FB33}\"",
                        "\"😀\"",
                        "\"\\ud83d\\ude00\"",
                    ];
                    match draw.below(10) {
                        known @ 0..8 => out.push_str(key[known]),
                        _ => draw.string(out),
                    }
                    draw.space(out);
                    out.push(':');
                    draw.value(out, depth + 1);
                });
            }
        }
        self.space(out);
    }

    fn list(
        &mut self,
        out: &mut String,
        ends: [char; 2],
        count: usize,
        mut item: impl FnMut(&mut Self, &mut String),
    ) {
        out.push(ends[0]);
        for index in 0..count {
            if index > 0 {
                out.push(',');
            }
            item(self, out);
        }
        out.push(ends[1]);
    }

    pub(crate) fn number(&mut self, out: &mut String) {
        match self.below(3) {
            0 => out.push_str(self.pick(&[
                "0",
                "-0",
                "1e1",
                "10.0",
                "9007199254740993",
                "1e400",
                "1e-400",
                "0.1e-7",
                "18446744073709551615",
                "18446744073709551616",
                "-9223372036854775808",
                "1E+2",
                "5e-324",
                "1e10001",
                "0.10",
            ])),
            1 => out.push_str(&(i16::from_be_bytes([self.byte(), self.byte()])).to_string()),
            _ => {
                let (int, fraction, exponent) =
                    (self.byte(), self.byte(), self.byte().cast_signed());
                out.push_str(&format!("{int}.{fraction}e{exponent}"));
            }
        }
    }

    fn string(&mut self, out: &mut String) {
        out.push('"');
        for _ in 0..self.below(6) {
            match self.below(8) {
                0..=2 => out.push(char::from(b'a' + self.byte() % 26)),
                3 => out
                    .push_str(self.pick(&["é", "日", "😀", "\u{7F}", "\u{2028}", "\u{FFFF}", "/"])),
                4 => out.push_str(self.pick(&[
                    "\\n",
                    "\\\"",
                    "\\\\",
                    "\\/",
                    "\\b",
                    "\\u0000",
                    "\\u001F",
                    "\\ud83d\\ude00",
                    "\\u00e9",
                ])),
                5 => out.push_str(&"plain text ".repeat(self.below(4))),
                6 => out.push_str(&format!(
                    "\\u{:04x}",
                    u16::from_be_bytes([self.byte() % 0xD8, self.byte()])
                )),
                // Rare enough that most documents stay acceptable.
                _ if self.below(12) == 11 => {
                    out.push_str(self.pick(&["\\ud800", "\\udc00x", "\\udbff\\u0041"]))
                }
                _ => {}
            }
        }
        out.push('"');
    }

    /// Text with a good share of what terminals must not see.
    pub(crate) fn text(&mut self) -> String {
        let mut out = String::new();
        for _ in 0..self.below(20) {
            let [a, b] = [u32::from(self.byte()), u32::from(self.byte())];
            let code = match self.below(8) {
                0 => a % 0x80,
                1 => 0x80 + a % 0x80,
                2 => 0x2000 + a % 0x70,
                3 => 0x300 + a % 0x70,
                4 => 0xE_0000 + a * 16 + b % 16,
                5 => a << 8 | b,
                6 => 0x1_D100 + a,
                _ => u32::from(b'a') + a % 26,
            };
            let repeat = if self.below(4) == 3 { 1 + self.below(9) } else { 1 };
            out.extend(std::iter::repeat_n(char::from_u32(code).unwrap_or('x'), repeat));
        }
        out
    }

    /// A schema, mostly of sensible keywords.
    pub(crate) fn schema(&mut self, depth: usize) -> String {
        if depth > 5 || self.below(12) == 11 {
            return ["true", "{}", "false"][self.below(3)].to_owned();
        }
        let mut members: Vec<String> = Vec::new();
        for _ in 0..self.below(4) {
            let member = match self.below(16) {
                0 => format!(
                    r#""type":"{}""#,
                    self.pick(&[
                        "object", "array", "string", "integer", "number", "null", "boolean"
                    ])
                ),
                1 => format!(
                    r#""properties":{{"a":{},"b":{}}}"#,
                    self.schema(depth + 1),
                    self.schema(depth + 1)
                ),
                2 => format!(r#""items":{}"#, self.schema(depth + 1)),
                3 => format!(r#""additionalProperties":{}"#, self.schema(depth + 1)),
                4 => {
                    let keyword = self.pick(&["allOf", "anyOf", "oneOf"]);
                    format!(
                        r#""{keyword}":[{},{}]"#,
                        self.schema(depth + 1),
                        self.schema(depth + 1)
                    )
                }
                5 => format!(
                    r#""{}":{}"#,
                    self.pick(&[
                        "not",
                        "if",
                        "contains",
                        "propertyNames",
                        "unevaluatedProperties",
                        "unevaluatedItems"
                    ]),
                    self.schema(depth + 1)
                ),
                6 => format!(
                    r##""$ref":"{}""##,
                    self.pick(&[
                        "#",
                        "#/$defs/x",
                        "#/properties/a",
                        "#/items",
                        "http://example.com",
                        "#/absent"
                    ])
                ),
                7 => format!(r#""$defs":{{"x":{}}}"#, self.schema(depth + 1)),
                8 | 9 => {
                    let mut number = String::new();
                    self.number(&mut number);
                    format!(
                        r#""{}":{number}"#,
                        self.pick(&[
                            "minimum",
                            "maximum",
                            "multipleOf",
                            "exclusiveMinimum",
                            "minLength",
                            "maxItems"
                        ])
                    )
                }
                10 => format!(
                    r#""pattern":"{}""#,
                    self.pick(&["^a", "a{2,5}$", "[^b]+", "(", "\\\\w+"])
                ),
                11 => {
                    let mut value = String::new();
                    self.value(&mut value, 7);
                    format!(r#""{}":{value}"#, self.pick(&["const", "default"]))
                }
                12 => r#""uniqueItems":true"#.to_owned(),
                13 => r#""required":["a"]"#.to_owned(),
                14 => format!(r#""patternProperties":{{"a|b":{}}}"#, self.schema(depth + 1)),
                _ => format!(r#""prefixItems":[{}]"#, self.schema(depth + 1)),
            };
            let key = member.split(':').next().unwrap_or_default().to_owned();
            if members.iter().all(|other| !other.starts_with(&key)) {
                members.push(member);
            }
        }
        format!("{{{}}}", members.join(","))
    }
}
