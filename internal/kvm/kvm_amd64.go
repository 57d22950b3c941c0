// Package kvm tests whether this machine's KVM runs guests: the existence of its device
// is not sufficient.
package kvm

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Requests of <linux/kvm.h>, Documentation/virt/kvm/api.rst of the kernel.
const (
	kvmGetAPIVersion = 0xae00     // KVM_GET_API_VERSION
	kvmCreateVM      = 0xae01     // KVM_CREATE_VM
	kvmGetRunSize    = 0xae04     // KVM_GET_VCPU_MMAP_SIZE
	kvmCreateVCPU    = 0xae41     // KVM_CREATE_VCPU
	kvmSetTSS        = 0xae47     // KVM_SET_TSS_ADDR
	kvmSetMemory     = 0x4020ae46 // KVM_SET_USER_MEMORY_REGION
	kvmRun           = 0xae80     // KVM_RUN

	kvmAPIVersion = 12 // only version of the API

	exitIO       = 2  // KVM_EXIT_IO
	exitEntry    = 9  // KVM_EXIT_FAIL_ENTRY
	exitInternal = 17 // KVM_EXIT_INTERNAL_ERROR
)

// Where things are in struct kvm_run.
const (
	runExit = 8  // exit reason, 32 bits
	runPort = 34 // port of exitIO, 16 bits
	runWhy  = 32 // reason of exitEntry and exitInternal, 64 bits
	runLeft = 40 // offset within the struct of the byte that exitIO wrote, 64 bits
)

// A CPU starts at the last 16 bytes below 4 GiB. This guest counts down, writes a byte
// to a port, and halts. The count distinguishes a CPU from KVM's instruction emulator,
// which needs a microsecond for an instruction of less than one nanosecond: KVM without
// hardware support (PVM) starts a guest, emulates all of its instructions until it runs
// a kernel made for it, and would take hours to boot another.
//
//	      mov ecx, 4000000
//	again: dec ecx
//	      jnz again
//	      mov al, 0x64
//	      out 0x10, al
//	      hlt
var guest = []byte{0x66, 0xb9, 0x00, 0x09, 0x3d, 0x00, 0x66, 0x49, 0x75, 0xfc, 0xb0, 0x64, 0xe6, 0x10, 0xf4}

const (
	guestPage  = 4096              // size of the guest's memory in bytes
	guestAt    = 1<<32 - guestPage // guest-physical address of the page
	guestStart = guestPage - 16    // offset of the first instruction in the page
	guestPort  = 0x10              // port that the guest writes to
	guestWord  = 0x64              // byte that the guest writes

	// tssAt is an unused guest-physical address for the TSS, which older Intel CPUs
	// need for real mode. QEMU uses the same.
	tssAt = 0xfffbd000
)

// memoryRegion is struct kvm_userspace_memory_region.
type memoryRegion struct {
	slot, flags       uint32 // number and flags of the region
	guest, size, ours uint64 // guest-physical address, size in bytes, and address in this process
}

// Run creates a VM with one page and one CPU on the given device, /dev/kvm, runs it
// until ctx ends at most, and checks its output. With hardware virtualization it takes
// a few milliseconds; without, it ends after cpuBudget of processor time.
func Run(ctx context.Context, device string) error {
	kvm, err := unix.Open(device, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: device, Err: err}
	}
	defer unix.Close(kvm)
	if v, err := ioctl(kvm, kvmGetAPIVersion, 0, "KVM_GET_API_VERSION"); err != nil || v != kvmAPIVersion {
		return fmt.Errorf("the KVM API has version %d instead of %d: %w", v, kvmAPIVersion, err)
	}
	size, err := ioctl(kvm, kvmGetRunSize, 0, "KVM_GET_VCPU_MMAP_SIZE")
	if err != nil {
		return err
	}
	vm, err := ioctl(kvm, kvmCreateVM, 0, "KVM_CREATE_VM")
	if err != nil {
		return err
	}
	defer unix.Close(vm)
	page, err := unix.Mmap(-1, 0, guestPage, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANONYMOUS|unix.MAP_SHARED)
	if err != nil {
		return err
	}
	defer unix.Munmap(page)
	// The reset vector is 16 bytes before the end of the page.
	copy(page[guestStart:], guest)
	_, _ = ioctl(vm, kvmSetTSS, tssAt, "KVM_SET_TSS_ADDR") // required by some machines only
	region := memoryRegion{guest: guestAt, size: guestPage, ours: uint64(uintptr(unsafe.Pointer(&page[0])))}
	if _, err := ioctl(vm, kvmSetMemory, uintptr(unsafe.Pointer(&region)), "KVM_SET_USER_MEMORY_REGION"); err != nil {
		return err
	}
	// The kernel has read the structure during the call.
	runtime.KeepAlive(&region)
	return runVCPU(ctx, vm, size)
}

// runVCPU creates a virtual CPU, runs it and checks its exit. size is the size of
// struct kvm_run.
func runVCPU(ctx context.Context, vm, size int) error {
	cpu, err := ioctl(vm, kvmCreateVCPU, 0, "KVM_CREATE_VCPU")
	if err != nil {
		return err
	}
	defer unix.Close(cpu)
	run, err := unix.Mmap(cpu, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map the vCPU: %w", err)
	}
	defer unix.Munmap(run)
	if err := runUntil(ctx, cpu); err != nil {
		return err
	}
	return checkExit(run)
}

// A guest that hardware runs needs a small part of cpuBudget. It is processor time, so
// a busy machine does not affect the result.
const (
	cpuBudget     = 100 * time.Millisecond // processor time after which KVM counts as an emulator
	checkInterval = 50 * time.Millisecond  // time between two reads of the processor time
)

// errEmulated is the error for a guest that exceeds cpuBudget.
var errEmulated = errors.New("KVM emulates the instructions of the guest: a loop of 4,000,000 steps did not end in 100 ms of processor time")

// runUntil runs a virtual CPU until it exits, ctx ends or it has used cpuBudget. To
// interrupt KVM_RUN, it sends SIGURG to the thread; the Go runtime uses this signal
// itself and ignores further ones. A signal before the call does not interrupt it, so
// they are repeated.
func runUntil(ctx context.Context, cpu int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ended := make(chan struct{})
	defer close(ended)
	go interruptUntil(ended, unix.Gettid())
	began, err := threadTime()
	if err != nil {
		return err
	}
	for {
		if _, err := ioctl(cpu, kvmRun, 0, "KVM_RUN"); err == nil || !isInterrupted(err) {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("the vCPU did not leave a loop of 4,000,000 steps: %w", ctx.Err())
		}
		if now, err := threadTime(); err != nil || now-began > cpuBudget {
			return cmp.Or(err, errEmulated)
		}
	}
}

// interruptUntil sends a signal to a thread each checkInterval, until ended is closed.
func interruptUntil(ended <-chan struct{}, thread int) {
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return
		case <-tick.C:
			_ = unix.Tgkill(os.Getpid(), thread, unix.SIGURG) // the thread may have ended
		}
	}
}

// threadTime returns the processor time of the current thread, with that of its vCPU.
func threadTime() (time.Duration, error) {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		return 0, fmt.Errorf("getrusage: %w", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}

// checkExit returns nil if the guest wrote the expected byte, else an error with the
// reason of the exit.
func checkExit(run []byte) error {
	why := binary.NativeEndian.Uint64(run[runWhy:])
	switch exit := binary.NativeEndian.Uint32(run[runExit:]); exit {
	case exitIO:
		at := binary.NativeEndian.Uint64(run[runLeft:])
		if port := binary.NativeEndian.Uint16(run[runPort:]); port != guestPort || at >= uint64(len(run)) || run[at] != guestWord {
			return fmt.Errorf("the guest wrote an unexpected value to port %#x", port)
		}
		return nil
	case exitEntry:
		return fmt.Errorf("the CPU refuses to enter the guest, reason %#x", why)
	case exitInternal:
		return fmt.Errorf("KVM cannot run the guest's instructions, internal error %d", uint32(why))
	default:
		return fmt.Errorf("the guest left with KVM exit %d", exit)
	}
}

// ioctl calls ioctl(2). name is the request in errors.
func ioctl(fd int, request, arg uintptr, name string) (int, error) {
	n, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, arg)
	if errno != 0 {
		return 0, fmt.Errorf("%s: %w", name, errno)
	}
	return int(n), nil
}

// isInterrupted reports whether a signal interrupted a system call.
func isInterrupted(err error) bool { return errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) }
