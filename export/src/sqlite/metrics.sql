-- Metrics that nsys has, with its names, so that scripts find "SMs Active", and the divisor of a value.
CREATE TEMP TABLE metrics (name TEXT PRIMARY KEY, id INTEGER, shown TEXT, unit REAL);
INSERT INTO temp.metrics VALUES
    ('core_clock', 1, 'GPC Clock Frequency [MHz]', 1e6),
    ('sm_active', 2, 'SMs Active [Throughput %]', 1),
    ('issue', 3, 'SM Issue [Throughput %]', 1),
    ('tensor', 4, 'Tensor Active [Throughput %]', 1),
    ('dram', 5, 'DRAM Bandwidth [Throughput %]', 1),
    ('l2', 6, 'L2 Sectors [Throughput %]', 1),
    ('l1', 7, 'L1 Data Pipe [Throughput %]', 1),
    ('warps_active', 8, 'Compute Warps in Flight [Throughput %]', 1),
    ('dram_read', 9, 'DRAM Read Bandwidth [MB/s]', 1e6),
    ('dram_write', 10, 'DRAM Write Bandwidth [MB/s]', 1e6),
    ('pcie_read', 11, 'PCIe RX Bandwidth [MB/s]', 1e6),
    ('pcie_write', 12, 'PCIe TX Bandwidth [MB/s]', 1e6),
    ('nvlink_read', 13, 'NVLink RX Bandwidth [MB/s]', 1e6),
    ('nvlink_write', 14, 'NVLink TX Bandwidth [MB/s]', 1e6),
    ('engine_active', 15, 'GR Active [Throughput %]', 1);
