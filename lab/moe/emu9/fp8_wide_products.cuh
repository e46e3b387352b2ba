#pragma once
#include "fp8_products.cuh"
