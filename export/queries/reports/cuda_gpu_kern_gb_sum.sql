-- CUDA GPU Kernel/Grid/Block Summary
SELECT {share}, COUNT(*) AS "Instances", {spread},
  printf('%4d %4d %4d', grid_x, grid_y, grid_z) AS "GridXYZ",
  printf('%4d %4d %4d', block_x, block_y, block_z) AS "BlockXYZ",
  name AS "Name"
FROM kernels
WHERE end_ns >= :from AND start_ns <= :until
GROUP BY mangled_name, grid_x, grid_y, grid_z, block_x, block_y, block_z
ORDER BY "Total Time (ns)" DESC, "Name", grid_x, grid_y, grid_z, block_x, block_y, block_z
