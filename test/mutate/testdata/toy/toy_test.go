package toy

import (
	"errors"
	"testing"
	"time"
)

func TestAll(t *testing.T) {
	if clamp(5, 3) != 3 || clamp(3, 3) != 3 || clamp(1, 3) != 1 || limit != 3 {
		t.Error("clamp")
	}
	if both(true, false) || !either(true, false) || bool(named(true, false)) {
		t.Error("logic")
	}
	if count([]int{0, 1, 2, 4}) != 2 {
		t.Error("count")
	}
	if scale(time.Second, 4) != -2*time.Second || shift(3) != 7 || difference(3, 1) != 2 {
		t.Error("arithmetic")
	}
	if name(nil) != "none!" || name(errors.New("x")) != "x!" {
		t.Error("name")
	}
}

func TestSlow(t *testing.T) {
	if testing.Short() {
		t.Skip("tests the option -short")
	}
	if clamp(3, 3) != 3 {
		t.Error("clamp")
	}
}
