"""Asks by requests, httpx (HTTP/1.1 and HTTP/2) and aiohttp: client.py URL CERT SITE"""

import asyncio
import ssl
import sys
from pathlib import Path

import aiohttp
import httpx
import requests

URL, CERT, SITE = sys.argv[1:]
WANTED = {"/": Path(SITE, "index.html").read_bytes(), "/large": Path(SITE, "large").read_bytes()}
PATHS = ["/"] * 50 + ["/large"]


def same(path, status, body):
    if status != 200 or body != WANTED[path]:
        sys.exit(f"{path}: {status}, {len(body)} bytes: {body[:200]!r}")


def by_requests():
    with requests.Session() as session:
        # A bundle in the environment would come before ours.
        session.trust_env, session.verify = False, CERT
        for path in PATHS:
            answer = session.get(URL + path)
            same(path, answer.status_code, answer.content)


async def by_httpx(http2):
    trust = ssl.create_default_context(cafile=CERT)
    async with httpx.AsyncClient(http2=http2, verify=trust, trust_env=False) as client:
        for path, answer in zip(PATHS, await asyncio.gather(*(client.get(URL + path) for path in PATHS))):
            same(path, answer.status_code, answer.content)
            if answer.http_version != ("HTTP/2" if http2 else "HTTP/1.1"):
                sys.exit(f"httpx spoke {answer.http_version}")


async def by_aiohttp():
    trust = ssl.create_default_context(cafile=CERT)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust)) as session:
        async def get(path):
            async with session.get(URL + path) as answer:
                same(path, answer.status, await answer.read())
        await asyncio.gather(*map(get, PATHS))


by_requests()
asyncio.run(by_httpx(False))
asyncio.run(by_httpx(True))
asyncio.run(by_aiohttp())
print(f"requests {requests.__version__}, httpx {httpx.__version__} (HTTP/1.1, HTTP/2), aiohttp {aiohttp.__version__}")
