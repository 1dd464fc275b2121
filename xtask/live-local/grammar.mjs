// Grammars under which even random weights ask for a tool that is there, with arguments that fit, or say a few words.

// The longest text that is written, in characters.
const MAX_TEXT = 12;

const literal = (text) => JSON.stringify(text);
const json = (value) => literal(JSON.stringify(value));

// A rule for a value of a schema; what a schema does not say is a text.
function value(schema) {
    if (schema.enum) return `(${schema.enum.map(json).join(" | ")})`;
    switch (schema.type) {
        case "object": return object(schema);
        case "array": return literal("[]");
        case "boolean": return `(${json(true)} | ${json(false)})`;
        case "integer": case "number": return json(schema.minimum ?? 0);
        default: return text(schema);
    }
}

function text({minLength = 0, maxLength = MAX_TEXT}) {
    const most = Math.max(1, Math.min(maxLength, MAX_TEXT));
    return `"\\"" [a-z]{${Math.min(Math.max(1, minLength), most)},${most}} "\\""`;
}

// Only what is required: a default is the other side's to fill in.
function object({properties = {}, required = []}) {
    const members = required.map((name) => `${literal(`${JSON.stringify(name)}:`)} ${value(properties[name] ?? {})}`);
    return `"{" ${members.join(' "," ')} "}"`;
}

// {"name":…,"arguments":{…}} for one of these functions.
export function callOf(functions) {
    const calls = functions.map(({name, parameters = {}}) =>
        `${literal(`{"name":${JSON.stringify(name)},"arguments":`)} ${object(parameters)} "}"`);
    return `root ::= ${calls.join(" | ")}\n`;
}

export const WORDS = "root ::= [a-z]{3,8} (\" \" [a-z]{3,8}){1,3}\n";
