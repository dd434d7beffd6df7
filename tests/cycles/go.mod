module kasha/cycles

go 1.19
