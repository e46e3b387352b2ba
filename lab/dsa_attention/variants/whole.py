"""Sums sent whole behind p ckv, instead of by halves."""
text = open("attend.cu").read()
new = text.replace("  if constexpr (Piece<CLUSTER>::A_WARP == 2) {\n    accumulate<0, 4>(shared, rows, valid, acc);\n    send_piece<CLUSTER, 0>(shared, rank, acc);\n    accumulate<4, 4>(shared, rows, valid, acc);\n    send_piece<CLUSTER, 4>(shared, rank, acc);\n  } else {\n    accumulate<0, 8>(shared, rows, valid, acc);\n    send_piece<CLUSTER, 0>(shared, rank, acc);\n  }\n", "  accumulate<0, 8>(shared, rows, valid, acc);\n  send_piece<CLUSTER, 0>(shared, rank, acc);\n  if constexpr (Piece<CLUSTER>::A_WARP == 2) send_piece<CLUSTER, 4>(shared, rank, acc);\n")
assert new != text
open("attend.cu", "w").write(new)
