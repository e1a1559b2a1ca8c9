// Command toy is what the museum's tests plant a bug in.
package main

import "fmt"

const name = "toy"

func sum(a, b int) int {
	return a + b
}

func main() { fmt.Println(name, "says", sum(1, 2)) }
