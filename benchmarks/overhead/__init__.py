"""What durability costs: anvil_django, the least that could do the job, and peers, on the same work.

``python -m benchmarks.overhead`` measures, ``python -m benchmarks.overhead.report`` makes tables and plots.
"""
