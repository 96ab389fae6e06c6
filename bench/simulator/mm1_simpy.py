"""M/M/1 at load 0.8 in SimPy, written as its manual does; prints one JSON object."""

import json
import random
import sys
import time

import simpy

LOAD = 0.8


def customer(env, server, responses):
    arrived = env.now
    with server.request() as turn:
        yield turn
        yield env.timeout(random.expovariate(1.0))
    responses.append(env.now - arrived)


def source(env, server, responses):
    while True:
        yield env.timeout(random.expovariate(LOAD))
        env.process(customer(env, server, responses))


customers = int(sys.argv[1])
random.seed(1)
env = simpy.Environment()
server = simpy.Resource(env, capacity=1)
responses = []
env.process(source(env, server, responses))
start = time.process_time()
env.run(until=customers / LOAD)
seconds = time.process_time() - start
print(json.dumps({
    "simulator": f"simpy {simpy.__version__}",
    "customers": len(responses),
    "seconds": seconds,
    "customers_per_second": len(responses) / seconds,
    "mean_response": sum(responses) / len(responses),
}))
