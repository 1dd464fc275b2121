// The tools, and the prompt, that need an answer of whoever sits at the client. Each is written once: where there is a session
// the SDK asks in it, and where there is none it answers with what is needed, and is called again.

import { acceptedContent, fromJsonSchema, inputRequired } from '@modelcontextprotocol/server';

import { object, said } from './peer-contents.mjs';

const TEXT = { type: 'string' };

const NAME = { message: 'What is your name?', requestedSchema: object({ name: TEXT }) };

const titled = (...pairs) => pairs.map(([value, title]) => ({ const: value, title }));

const DEFAULTS = {
    type: 'object',
    properties: {
        name: { type: 'string', default: 'John Doe' },
        age: { type: 'integer', default: 30 },
        score: { type: 'number', default: 95.5 },
        status: { type: 'string', enum: ['active', 'inactive', 'pending'], default: 'active' },
        verified: { type: 'boolean', default: true }
    },
    required: []
};

const ENUMS = {
    type: 'object',
    properties: {
        untitledSingle: { type: 'string', enum: ['option1', 'option2', 'option3'] },
        titledSingle: {
            type: 'string',
            oneOf: titled(['value1', 'First Option'], ['value2', 'Second Option'], ['value3', 'Third Option'])
        },
        legacyEnum: {
            type: 'string',
            enum: ['opt1', 'opt2', 'opt3'],
            enumNames: ['Option One', 'Option Two', 'Option Three']
        },
        untitledMulti: { type: 'array', items: { type: 'string', enum: ['option1', 'option2', 'option3'] } },
        titledMulti: {
            type: 'array',
            items: { anyOf: titled(['value1', 'First Choice'], ['value2', 'Second Choice'], ['value3', 'Third Choice']) }
        }
    },
    required: []
};

/** `states` signs what a client carries from one round to the next. */
export function registerAsking(server, states) {
    const tool = (name, description, answer, schema = object()) =>
        server.registerTool(name, { description, inputSchema: fromJsonSchema(schema) }, answer);

    tool(
        'test_sampling',
        "Asks the client's model.",
        ({ prompt }, { mcpReq }) => {
            const reply = mcpReq.inputResponses?.reply;
            return reply ? said(`LLM response: ${reply.content?.text}`) : needs({ reply: sample(prompt, 100) });
        },
        object({ prompt: TEXT })
    );
    tool(
        'test_elicitation',
        'Asks who is there.',
        ({ message }, { mcpReq }) => {
            const requestedSchema = object({ username: TEXT, email: TEXT });
            const reply = mcpReq.inputResponses?.reply;
            return reply ? told('User response', reply) : needs({ reply: inputRequired.elicit({ message, requestedSchema }) });
        },
        object({ message: TEXT })
    );
    for (const [name, requestedSchema] of [
        ['test_elicitation_sep1034_defaults', DEFAULTS],
        ['test_elicitation_sep1330_enums', ENUMS]
    ]) {
        tool(name, 'Asks with a schema of many kinds.', (_, { mcpReq }) => {
            const reply = mcpReq.inputResponses?.reply;
            const request = { message: 'Please fill this in.', requestedSchema };
            return reply ? told('Elicitation completed', reply) : needs({ reply: inputRequired.elicit(request) });
        });
    }

    tool('test_input_required_result_elicitation', 'Asks for a name.', (_, { mcpReq }) => {
        const given = acceptedContent(mcpReq.inputResponses, 'user_name');
        return typeof given?.name === 'string' ? said(`Hello, ${given.name}!`) : needs({ user_name: inputRequired.elicit(NAME) });
    });
    tool('test_input_required_result_sampling', "Asks the client's model for a capital.", (_, { mcpReq }) => {
        const reply = mcpReq.inputResponses?.capital_question;
        return reply ? said(`${reply.content?.text}`) : needs({ capital_question: sample('What is the capital of France?', 100) });
    });
    tool('test_input_required_result_list_roots', "Asks for the client's roots.", (_, { mcpReq }) => {
        const reply = mcpReq.inputResponses?.client_roots;
        return reply ? said(`Roots: ${JSON.stringify(reply.roots)}`) : needs({ client_roots: inputRequired.listRoots() });
    });
    for (const name of ['test_input_required_result_request_state', 'test_input_required_result_tampered_state']) {
        tool(name, 'Asks for a yes, and knows its own state again.', async (_, { mcpReq }) => {
            const given = acceptedContent(mcpReq.inputResponses, 'confirm');
            if (given && mcpReq.requestState()?.asked === name) {
                return said('state-ok');
            }
            const confirm = inputRequired.elicit({ message: 'Please confirm', requestedSchema: object({ ok: { type: 'boolean' } }) });
            return needs({ confirm }, await states.mint({ asked: name }));
        });
    }
    tool('test_input_required_result_multiple_inputs', 'Asks for three things at once.', async (_, { mcpReq }) => {
        const { user_name, greeting, client_roots } = mcpReq.inputResponses ?? {};
        if (user_name && greeting && client_roots) {
            return said('All three are here.');
        }
        const asked = {
            user_name: inputRequired.elicit(NAME),
            greeting: sample('Generate a greeting', 50),
            client_roots: inputRequired.listRoots()
        };
        return needs(asked, await states.mint({ asked: 'three' }));
    });
    tool('test_input_required_result_multi_round', 'Asks twice.', async (_, { mcpReq }) => {
        const round = mcpReq.requestState()?.round ?? 0;
        const ask = (message, member) => inputRequired.elicit({ message, requestedSchema: object({ [member]: TEXT }) });
        if (round === 2 && mcpReq.inputResponses?.step2) {
            return said('Both rounds are done.');
        }
        if (round >= 1 && mcpReq.inputResponses?.step1) {
            return needs({ step2: ask('Step 2: What is your favorite color?', 'color') }, await states.mint({ round: 2 }));
        }
        return needs({ step1: ask('Step 1: What is your name?', 'name') }, await states.mint({ round: 1 }));
    });
    tool('test_input_required_result_capabilities', 'Asks for what the client can give.', (_, { mcpReq }) => {
        const can = mcpReq.envelope?.['io.modelcontextprotocol/clientCapabilities'] ?? {};
        const asked = {};
        if (can.sampling) {
            asked.thought = sample('Think of a number', 50);
        }
        if (can.elicitation) {
            asked.user_name = inputRequired.elicit(NAME);
        }
        return mcpReq.inputResponses ? said('Thank you.') : needs(asked);
    });
    tool('test_missing_capability', "Cannot do without the client's model.", () => needs({ thought: sample('Think', 50) }));
    tool('test_streaming_elicitation', 'Asks for a name.', () => needs({ user_name: inputRequired.elicit(NAME) }));

    server.registerPrompt(
        'test_input_required_result_prompt',
        { description: 'Needs a context.' },
        ({ mcpReq }) => {
            const given = acceptedContent(mcpReq.inputResponses, 'user_context');
            if (given) {
                return { messages: [{ role: 'user', content: { type: 'text', text: `Context: ${given.context}` } }] };
            }
            const message = 'What context should the prompt use?';
            return needs({ user_context: inputRequired.elicit({ message, requestedSchema: object({ context: TEXT }) }) });
        }
    );
}

function needs(inputRequests, requestState) {
    return inputRequired({ inputRequests, requestState });
}

function sample(text, maxTokens) {
    return inputRequired.createMessage({ messages: [{ role: 'user', content: { type: 'text', text } }], maxTokens });
}

function told(what, { action, content }) {
    return said(`${what}: action=${action}, content=${JSON.stringify(content ?? {})}`);
}
