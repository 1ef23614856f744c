/* What the kernel's mlx5 headers take from the rest of the kernel, so that they compile alone. Only sizes matter here:
 * nothing of this runs but the headers' own accessors of one byte. */
#include <stddef.h>

int printf(const char *format, ...);

typedef unsigned char u8, __u8;
typedef unsigned short u16, __u16, __be16, __le16, __sum16;
typedef unsigned int u32, __u32, __be32, __le32;
typedef unsigned long long u64, __u64, __be64, __le64;
typedef int s32;
typedef long long s64;
typedef _Bool bool;

#define __LITTLE_ENDIAN 1234
#define PAGE_SIZE 4096
#define __packed __attribute__((__packed__))
#define __force
#define __iomem
#define BIT(n) (1ul << (n))
#define BIT_ULL(n) (1ull << (n))
#define GENMASK(high, low) ((~0ul >> (63 - (high))) & (~0ul << (low)))
#define GENMASK_ULL(high, low) ((~0ull >> (63 - (high))) & (~0ull << (low)))
#define struct_group(name, members...) union { struct { members }; struct { members } name; }
#define DECLARE_FLEX_ARRAY(type, name) struct { struct { } none_##name; type name[]; }
#define BUILD_BUG_ON(condition)
#define BUILD_BUG_ON_ZERO(condition) ((int)sizeof(struct { int : (-!!(condition)); }))
#define container_of(pointer, type, member) ((type *)(void *)(pointer))
#define cpu_to_be16 __builtin_bswap16
#define be16_to_cpu __builtin_bswap16
#define cpu_to_be32 __builtin_bswap32
#define be32_to_cpu __builtin_bswap32
#define cpu_to_be64 __builtin_bswap64
#define be64_to_cpu __builtin_bswap64
#define get_unaligned_be64(from) be64_to_cpu(*(from))
#define put_unaligned_be64(value, to) ((void)(*(to) = cpu_to_be64(value)))
#define get_unaligned(from) (*(from))
#define put_unaligned(value, to) ((void)(*(to) = (value)))
#define wmb()
#define print_hex_dump(...)

/* <rdma/ib_verbs.h> */
struct ib_ah { int none; };

/* <linux/mlx5/driver.h> and what it includes */
typedef struct { int none; } refcount_t;
struct completion { int none; };
struct in6_addr { u8 bytes[16]; };
struct list_head { struct list_head *next, *prev; };
struct mlx5_core_dev { struct { struct { u32 cur[1], max[1]; } *hca[1]; } caps; };
struct mlx5_core_rsc_common { int none; };
enum { MLX5_CQ_DOORBELL = 0x20 };
static inline void mlx5_write64(__be32 value[2], void *where) { (void)value, (void)where; }
static inline bool mlx5_get_roce_state(struct mlx5_core_dev *dev) { return !dev; }
static inline void refcount_inc(refcount_t *count) { (void)count; }
static inline int refcount_dec_and_test(refcount_t *count) { return !count; }
static inline void complete(struct completion *completion) { (void)completion; }
