// The types of the packages describe what a program does with them.
import { createServer } from 'node:http';
import { Client, type Outcome } from 'tidegate-client';
import { tidegateNucleus } from 'tidegate-nucleus';

const nucleus = tidegateNucleus();
createServer((req, res) => nucleus(req, res, () => res.end(String(req.optionalContent))));

export async function bid(): Promise<Response | undefined> {
  const client = await Client.open({ channel: 'https://auction.example:8090', key: 'ab' });
  const outcome: Outcome = await client.submit('/bids', { method: 'POST', body: 'amount=1' }, 'lot');
  return 'response' in outcome ? outcome.response : undefined;
}

// @ts-expect-error the key is needed
void Client.open({ channel: 'https://auction.example:8090' });
