module @unknown_call {
  func.func public @main(%x: tensor<1024xf32>) -> tensor<1024xf32> {
    %0 = stablehlo.custom_call @no_such_kernel(%x) : (tensor<1024xf32>) -> tensor<1024xf32>
    return %0 : tensor<1024xf32>
  }
}
