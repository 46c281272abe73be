"""Laws: pure one-expression functions of quantities, each with its source."""
