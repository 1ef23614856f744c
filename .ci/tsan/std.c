/* Tells ThreadSanitizer what it does not see of the standard library, which is compiled without it: the slow paths of
 * locks, the end of a scope's threads, the end of an Arc. The linker's --wrap leads calls to them through here;
 * .ci/tsan/run names the symbols. */

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long u64;

void __tsan_acquire(void *address);
void __tsan_release(void *address);

/* std::sys::sync::mutex::futex::Mutex::lock_contended(&self) */
void __real_LOCK_CONTENDED(u32 *mutex);
void __wrap_LOCK_CONTENDED(u32 *mutex)
{
    __real_LOCK_CONTENDED(mutex);
    __tsan_acquire(mutex);
}

/* std::sys::sync::rwlock::futex::RwLock::{read,write}_contended(&self): two words, one of which is the state */
static void acquire_both(u32 *lock)
{
    __tsan_acquire(lock);
    __tsan_acquire(lock + 1);
}

void __real_READ_CONTENDED(u32 *lock);
void __wrap_READ_CONTENDED(u32 *lock)
{
    __real_READ_CONTENDED(lock);
    acquire_both(lock);
}

void __real_WRITE_CONTENDED(u32 *lock);
void __wrap_WRITE_CONTENDED(u32 *lock)
{
    __real_WRITE_CONTENDED(lock);
    acquire_both(lock);
}

/* std::sys::sync::condvar::futex::Condvar::wait_timeout(&self, &Mutex, Duration): leaves the mutex, and takes it
 * again */
u8 __real_WAIT_TIMEOUT(void *condition, u32 *mutex, u64 seconds, u32 nanoseconds);
u8 __wrap_WAIT_TIMEOUT(void *condition, u32 *mutex, u64 seconds, u32 nanoseconds)
{
    __tsan_release(mutex);
    u8 woken = __real_WAIT_TIMEOUT(condition, mutex, seconds, nanoseconds);
    __tsan_acquire(mutex);
    return woken;
}

/* std::thread::scoped::ScopeData::decrement_num_running_threads(&self, bool): three words, one of which is the number
 * that the scope's own thread waits for */
void __real_SCOPE_LEFT(u64 *scope, u8 panicked);
void __wrap_SCOPE_LEFT(u64 *scope, u8 panicked)
{
    for (int word = 0; word < 3; word++)
        __tsan_release(scope + word);
    __real_SCOPE_LEFT(scope, panicked);
}

/* The end of an Arc: the count is taken down by a release, and the last owner makes an acquire fence, which
 * ThreadSanitizer does not know. So the count is taken down by both. */
enum { RELEASE = 3, ACQUIRE_AND_RELEASE = 4 };

u64 __real___tsan_atomic64_fetch_sub(volatile u64 *count, u64 by, int order);
u64 __wrap___tsan_atomic64_fetch_sub(volatile u64 *count, u64 by, int order)
{
    return __real___tsan_atomic64_fetch_sub(count, by, order == RELEASE ? ACQUIRE_AND_RELEASE : order);
}
