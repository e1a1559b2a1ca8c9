package main

var clusterRows []row
