// Resources: a text, an image, one that can be watched, and a template.

import { ResourceTemplate } from '@modelcontextprotocol/server';

import { PNG } from './peer-contents.mjs';

export function registerResources(server) {
    const fixed = (name, description, uri, mimeType, content) =>
        server.registerResource(name, uri, { description, mimeType }, () => ({ contents: [{ uri, mimeType, ...content }] }));

    fixed('Text', 'A text that stays.', 'test://static-text', 'text/plain', {
        text: 'This is the content of the static text resource.'
    });
    fixed('Image', 'A red point.', 'test://static-binary', 'image/png', { blob: PNG });
    fixed('Watched', 'A text that can be watched.', 'test://watched-resource', 'text/plain', { text: 'Watched.' });
    server.registerResource(
        'Data',
        new ResourceTemplate('test://template/{id}/data', { list: undefined }),
        { description: 'Data by its id.', mimeType: 'application/json' },
        (uri, { id }) => {
            const text = JSON.stringify({ id, templateTest: true, data: `Data for ID: ${id}` });
            return { contents: [{ uri: uri.href, mimeType: 'application/json', text }] };
        }
    );
    // Nothing here changes, so that who watches is told nothing.
    for (const method of ['resources/subscribe', 'resources/unsubscribe']) {
        server.server.setRequestHandler(method, () => ({}));
    }
}
