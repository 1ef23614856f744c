/*
 * The kernel's layouts of commands, for DEVX_SET and DEVX_GET.
 */
#include <stdint.h>

/* Definitions that mlx5_ifc.h takes from other kernel headers. */
typedef uint8_t u8;
#define BIT(number) (1 << (number))
#define BIT_ULL(number) (1ull << (number))
#define DECLARE_FLEX_ARRAY(type, name) type name[0]

#include "mlx5_ifc.h"
