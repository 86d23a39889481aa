module @two_arguments {
  func.func public @main(%x: tensor<1024xf32>, %y: tensor<1024xf32>) -> tensor<1024xf32> {
    %0 = stablehlo.add %x, %y : tensor<1024xf32>
    return %0 : tensor<1024xf32>
  }
}
