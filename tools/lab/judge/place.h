/* Prints where things lie, a line each: first bit, most significant first, and number of bits. */

/* A member of a mlx5_ifc structure, where one byte stands for one bit. */
#define IFC(type, member) out(offsetof(type, member), sizeof(((type *)0)->member))
#define IFC_LIST(type, member) out(offsetof(type, member), sizeof(((type *)0)->member[0]))
#define IFC_LIST_START(type, member) out(offsetof(type, member), 0)
#define IFC_SIZE(type) out(0, sizeof(type))

/* A member of a structure as it lies in memory, and the bits of one that `mask` selects. */
#define WHOLE(type, member) out(offsetof(type, member) * 8, sizeof(((type *)0)->member) * 8)
#define MASKED(type, member, mask) masked(offsetof(type, member), sizeof(((type *)0)->member), (mask))
#define SIZE(type) out(0, sizeof(type) * 8)

/* A bit field of C, in one byte. */
#define BIT_FIELD(type, member) ({ type value = { 0 }; value.member = ~0; the_byte(&value, sizeof(value)); })

/* A field of the communication manager's messages: macros of <rdma/ibta_vol1_c12.h> stand for structure, byte offset,
 * mask (or type) and number of bits. */
#define CM_PLACE(field) CM_PLACE_OF(field)
#define CM_PLACE_OF(type, offset, mask, bits) wide(offset, bits, mask)
#define CM_BYTES(field) CM_BYTES_OF(field)
#define CM_BYTES_OF(type, offset, of, bits) out((offset) * 8, bits)

/* A list that the structure does not declare: it begins where that ends. */
#define END(type) out(sizeof(type) * 8, 0)

/* The mask of a byte that the header's own accessor reads. */
#define READ_BY(type, member, accessor) ({                                                                            \
	unsigned bits = 0;                                                                                            \
	for (int bit = 0; bit < 8; bit++) {                                                                           \
		type value = { 0 };                                                                                   \
		value.member = 1 << bit;                                                                              \
		if (accessor(&value))                                                                                 \
			bits |= 1 << bit;                                                                             \
	}                                                                                                             \
	bits; })

#define NUMBER(expression) printf("%lld\n", (long long)(expression))
#define UNKNOWN() printf("unknown\n")

static void out(unsigned long start, unsigned long bits)
{
	printf("%lu %lu\n", start, bits);
}

static void masked(unsigned long offset, unsigned long bytes, unsigned mask)
{
	unsigned high = 31 - __builtin_clz(mask), low = __builtin_ctz(mask);
	unsigned long whole = high - low + 1 == (unsigned)__builtin_popcount(mask);

	out(whole ? offset * 8 + bytes * 8 - 1 - high : ~0ul, high - low + 1);
}

/* As masked(), of a number of any size. */
static inline void wide(unsigned long offset, unsigned long bits, unsigned long long mask)
{
	unsigned long high = 63 - __builtin_clzll(mask), low = __builtin_ctzll(mask);

	out(offset * 8 + bits - 1 - high, high - low + 1);
}

static inline void the_byte(const void *value, unsigned long size)
{
	const unsigned char *bytes = value;
	unsigned long at = 0;

	while (at + 1 < size && !bytes[at])
		at++;
	masked(at, 1, bytes[at]);
}
