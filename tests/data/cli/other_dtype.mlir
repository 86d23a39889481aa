module @other_dtype {
  func.func public @main(%x: tensor<1024xi32>) -> tensor<1024xi32> {
    %0 = stablehlo.add %x, %x : tensor<1024xi32>
    return %0 : tensor<1024xi32>
  }
}
