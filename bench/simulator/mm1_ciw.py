"""M/M/1 at load 0.8 in Ciw, written as its manual does; prints one JSON object."""

import json
import sys
import time

import ciw

LOAD = 0.8

customers = int(sys.argv[1])
ciw.seed(1)
network = ciw.create_network(
    arrival_distributions=[ciw.dists.Exponential(rate=LOAD)],
    service_distributions=[ciw.dists.Exponential(rate=1.0)],
    number_of_servers=[1],
)
simulation = ciw.Simulation(network)
start = time.process_time()
simulation.simulate_until_max_time(customers / LOAD)
seconds = time.process_time() - start
records = simulation.get_all_records()
responses = [record.exit_date - record.arrival_date for record in records]
print(json.dumps({
    "simulator": f"ciw {ciw.__version__}",
    "customers": len(responses),
    "seconds": seconds,
    "customers_per_second": len(responses) / seconds,
    "mean_response": sum(responses) / len(responses),
}))
