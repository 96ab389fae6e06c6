// The browser client as it is packed: both modules are there and load.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Client } from 'tidegate-client';

test('the client loads, and refuses a key that is none', async () => {
  assert.equal(typeof Client.open, 'function');
  await assert.rejects(Client.open({ channel: 'http://127.0.0.1:1', key: 'no key' }));
});
