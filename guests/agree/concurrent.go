// Go: goroutines, channels, timers, garbage collection, panics, child processes, a local HTTP server.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sort"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

func fib(n int) int {
	if n < 2 {
		return n
	}
	return fib(n-1) + fib(n-2)
}

type node struct{ left, right *node }

func tree(depth int) *node {
	if depth == 0 {
		return &node{}
	}
	return &node{tree(depth - 1), tree(depth - 1)}
}

func (n *node) count() int {
	if n.left == nil {
		return 1
	}
	return 1 + n.left.count() + n.right.count()
}

func recovers() (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("recovered: %v", r)
		}
	}()
	var p *node
	return errors.New(fmt.Sprint(p.left))
}

func main() {
	results := make(chan int)
	for i := 0; i < 8; i++ {
		go func(n int) { results <- fib(15 + n) }(i)
	}
	var got []int
	for i := 0; i < 8; i++ {
		got = append(got, <-results)
	}
	sort.Ints(got)
	fmt.Println(got)

	var wg sync.WaitGroup
	var mu sync.Mutex
	var total int64
	counts := map[int]int{}
	for i := 0; i < 10; i++ {
		wg.Add(1)
		go func(n int) {
			defer wg.Done()
			for j := 0; j < 100; j++ {
				atomic.AddInt64(&total, int64(j))
				mu.Lock()
				counts[j%10]++
				mu.Unlock()
				runtime.Gosched()
			}
		}(i)
	}
	wg.Wait()
	fmt.Println(total, counts)

	sum := 0
	for i := 0; i < 20; i++ {
		sum += tree(12).count()
	}
	runtime.GC()
	fmt.Println("nodes", sum)
	fmt.Println(recovers())

	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	select {
	case <-ctx.Done():
		fmt.Println(ctx.Err())
	case <-time.After(10 * time.Second):
		fmt.Println("late")
	}
	// A loop without calls must not keep the others from running.
	var stop int32
	go func() { time.Sleep(5 * time.Millisecond); atomic.StoreInt32(&stop, 1) }()
	for atomic.LoadInt32(&stop) == 0 {
	}
	fmt.Println("preempted")

	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1)
	syscall.Kill(os.Getpid(), syscall.SIGUSR1)
	fmt.Println(<-signals)

	out, err := exec.Command("sh", "-c", "echo from a child; exit 3").Output()
	fmt.Printf("%q %v\n", out, err)
	_, err = exec.Command("/no/such/program").Output()
	fmt.Println(err)

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "path %s", r.URL.Path)
	}))
	response, err := http.Get("http://" + listener.Addr().String() + "/hello")
	if err != nil {
		panic(err)
	}
	body, _ := io.ReadAll(response.Body)
	fmt.Println(response.Status, string(body))
	if len(os.Args) > 1 {
		os.Exit(5)
	}
}
