// Java: threads, executors, exceptions, collections, the just-in-time compiler and the garbage collector.
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;
import java.util.stream.*;

public class Concurrent {
    static int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }

    public static void main(String[] args) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(4);
        List<Future<Integer>> futures = new ArrayList<>();
        for (int i = 0; i < 8; i++) {
            int n = 15 + i;
            futures.add(pool.submit(() -> fib(n)));
        }
        for (Future<Integer> f : futures) System.out.print(f.get() + " ");
        System.out.println();
        AtomicLong total = new AtomicLong();
        CountDownLatch latch = new CountDownLatch(4);
        for (int i = 0; i < 4; i++)
            pool.execute(() -> {
                for (int j = 0; j < 1000; j++) total.addAndGet(j);
                latch.countDown();
            });
        latch.await();
        System.out.println(total);
        pool.shutdown();
        long sum = 0;
        for (int i = 0; i < 200; i++) {
            List<int[]> garbage = new ArrayList<>();
            for (int j = 0; j < 100; j++) garbage.add(new int[1000]);
            sum += garbage.size();
        }
        System.out.println(sum);
        try {
            Object o = null;
            o.toString();
        } catch (NullPointerException e) {
            System.out.println("null pointer caught");
        }
        try {
            recurse(0);
        } catch (StackOverflowError e) {
            System.out.println("stack overflow caught");
        }
        System.out.println(IntStream.range(0, 1000).parallel().map(x -> x * x % 17).sum());
        System.out.println(Stream.of("b", "a", "c").sorted().collect(Collectors.joining(",")));
        System.exit(args.length > 0 ? 4 : 0);
    }

    static int recurse(int n) { return recurse(n + 1) + 1; }
}
